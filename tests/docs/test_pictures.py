"""The pictures of docs/concepts.md are what the code draws today, small, and readable in light and dark."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.docs.reading import ROOT, text_of

PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
MOST_BYTES = 60_000
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)")
ID = re.compile(r"""((?:\bid="|url\(#|href="#))([^")]+)""")
ROUNDING = 1.0
"""Tolerance for the points of a picture: another processor may round differently."""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pictures")
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "tools" / "pictures"), str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.one_part_per_commit("pages that show what the code does", parts=6)
@pytest.mark.parametrize("picture", PICTURES, ids=[picture.stem for picture in PICTURES])
def test_a_picture_shows_what_the_code_does_now(picture: Path, drawn: Path) -> None:
    kept, new = (NUMBER.split(renumbered(text_of(folder / picture.name))) for folder in (picture.parent, drawn))
    for ours, theirs in zip_longest(kept, new, fillvalue=""):
        same = ours == theirs or (NUMBER.fullmatch(ours) and NUMBER.fullmatch(theirs) and near(ours, theirs))
        assert same, (
            f"{picture.name} is not what the code draws ({ours[-80:]!r} is {theirs[-80:]!r}): run make pictures, and look"
        )


def renumbered(text: str) -> str:
    """The text with ids counted in the order they appear: the drawing library hashes coordinates into them, rounding and all."""
    order: dict[str, str] = {}
    return ID.sub(lambda match: match[1] + order.setdefault(match[2], f"id-{len(order)}"), text)


def near(ours: str, theirs: str) -> bool:
    return abs(float(ours) - float(theirs)) <= ROUNDING


def test_every_picture_is_kept_and_shown(drawn: Path) -> None:
    shown = re.findall(r"\]\(pictures/([^)]+)\)", text_of(ROOT / "docs" / "concepts.md"))
    assert sorted(shown) == [picture.name for picture in PICTURES] == sorted(file.name for file in drawn.iterdir())


@pytest.mark.parametrize("picture", PICTURES, ids=[picture.stem for picture in PICTURES])
def test_a_picture_is_small_has_text_and_no_colour_that_dark_readers_lose(picture: Path) -> None:
    text = text_of(picture)
    assert picture.stat().st_size < MOST_BYTES
    assert text.count("<text") > 5
    style = re.search(r"<style>(.*?)</style>", text)
    assert style is not None
    used = set(re.findall(r"(?:fill|stroke): (#\w{6})", text.replace(style[0], "")))
    assert used
    assert used <= set(re.findall(r'\[style\*="(?:fill|stroke): (#\w{6})"\]', style[1]))
