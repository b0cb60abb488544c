"""docs/code.md has the picture of the packages as they import each other today."""

from __future__ import annotations

import sys

import pytest

from tests.docs.reading import ROOT, text_of

sys.path.insert(0, str(ROOT / "docs" / "tools" / "packages"))
from packages_picture import FILE, OTHERS, imports, picture, with_picture


def test_the_picture_is_what_the_generator_draws() -> None:
    document = text_of(ROOT / FILE)
    assert document == with_picture(document), "run: make packages"


def test_every_package_of_the_node_is_drawn() -> None:
    parts = {path.stem for path in (ROOT / "sbon_node").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(imports()) == (parts - {"__init__"}) | set(OTHERS)


def test_arrows_that_follow_from_others_are_left_out() -> None:
    drawn = picture({"c": {"a", "b", "d"}, "b": {"a"}, "a": set(), "d": set()})
    assert drawn.splitlines()[2:-1] == ["    c --> b & d", "    b --> a"]


def test_a_document_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"docs/code\.md lacks the lines"):
        with_picture("# A tour of the code\n")
