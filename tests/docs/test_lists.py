"""Lists in the documents name all there is and nothing else."""

from __future__ import annotations

import re

from msgspec.structs import astuple

from sbon_node.papers.table import STRATEGIES
from sbon_protocol.api.strategies import AUTO, OBJECTIVES, STRATEGY_NAMES
from tests.docs.reading import ROOT, text_of

PLACEMENT = text_of(ROOT / "docs" / "placement.md")
NUMBERS = ("Seventeen", "Eighteen", "Nineteen", "Twenty", "Twenty-one", "Twenty-two")


def first_cells(heading: str) -> list[str]:
    """The names in the first column of the section's table."""
    section = PLACEMENT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)


def test_every_strategy_and_objective_is_listed_once() -> None:
    assert sorted(first_cells("Strategies")) == sorted([AUTO, *STRATEGY_NAMES])
    assert first_cells("Objectives") == list(OBJECTIVES)


def test_the_profiles_of_strategies_are_those_that_are_explained() -> None:
    """The page and ``sbon explain placement`` share the words."""
    section = PLACEMENT.split("\n## Which of them when\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, re.MULTILINE)
    profiles = STRATEGIES.profiles
    assert {name: tuple(cells.split(" | ")) for name, cells in rows} == {name: astuple(one) for name, one in profiles.items()}
    assert list(profiles) == list(STRATEGY_NAMES)


def test_the_readme_counts_them() -> None:
    others = re.search(r"([A-Z][a-z-]+) others can be asked for", " ".join(text_of(ROOT / "README.md").split()))
    assert others is not None
    assert NUMBERS.index(others[1]) + 17 == len(STRATEGY_NAMES)
