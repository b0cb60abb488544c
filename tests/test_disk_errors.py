"""Errors of a disk, as users read them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sbon_node.base.disk import is_full, named_errors
from sbon_protocol.errors import SbonError
from tests.full_disks import no_room


def test_a_full_disk_says_how_much_is_free() -> None:
    full = Path("/dev/full")
    with pytest.raises(SbonError) as caught, named_errors(full), full.open("wb") as file:
        file.write(b"x")
    assert caught.value.code == "disk-full"
    assert re.fullmatch(r"no space for more: [\d,]+\.\d MB free", caught.value.message)


def test_only_a_lack_of_space_is_a_full_disk(tmp_path: Path) -> None:
    assert not is_full(tmp_path)
    assert not is_full(tmp_path / "none"), "there is no folder, which is not for lack of space"
    with no_room():
        assert is_full(tmp_path)
