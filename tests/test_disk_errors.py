"""Errors of a disk, as users read them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sbon_node.disk import named_errors
from sbon_node.errors import SbonError


def test_a_full_disk_says_how_much_is_free() -> None:
    full = Path("/dev/full")
    with pytest.raises(SbonError) as caught, named_errors(full), full.open("wb") as file:
        file.write(b"x")
    assert caught.value.code == "disk-full"
    assert re.fullmatch(r"no space for more: [\d,]+\.\d MB free", caught.value.message)
