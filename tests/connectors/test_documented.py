"""docs/connectors.md names every connector, its options and, of this machine, every metric; and no other options."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from sbon_node.connectors.sinks.registry import SINKS
from sbon_node.connectors.sources.host_metrics import METRICS
from sbon_node.connectors.sources.registry import SOURCES

TEXT = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text(encoding="utf-8")


def documented(section: str) -> list[str]:
    """The options of the section's table, in its order."""
    table = section.split("| option | meaning |")[1].split("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


@pytest.mark.parametrize("name", SOURCES)
def test_options_are_documented(name: str) -> None:
    section = TEXT.split(f"\n### {name}\n")[1].split("\n## ")[0].split("\n### ")[0]
    assert documented(section) == [field.encode_name for field in msgspec.structs.fields(SOURCES[name].options)]


@pytest.mark.parametrize("name", [name for name in SINKS if msgspec.structs.fields(SINKS[name].options)])
def test_options_of_sinks_are_documented(name: str) -> None:
    section = TEXT.split(f"\n### Sink {name}\n")[1].split("\n## ")[0].split("\n### ")[0]
    assert documented(section) == [field.encode_name for field in msgspec.structs.fields(SINKS[name].options)]


def test_metrics_are_documented() -> None:
    table = TEXT.split("| column | meaning |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert re.findall(r"`(\w+)`", " ".join(cells)) == list(METRICS)
