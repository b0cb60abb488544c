"""docs/connectors.md names every connector, its options and, of this machine, every metric; and no other options."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from sbon_node.connectors.host_metrics import METRICS
from sbon_node.connectors.registry import SOURCES

TEXT = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SOURCES)
def test_options_are_documented(name: str) -> None:
    section = TEXT.split(f"\n## {name}\n")[1].split("\n## ")[0]
    table = section.split("| option | what it is |")[1].split("\n\n")[0]
    documented = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert documented == [field.encode_name for field in msgspec.structs.fields(SOURCES[name].options)]


def test_metrics_are_documented() -> None:
    table = TEXT.split("| column | what it is |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert re.findall(r"`(\w+)`", " ".join(cells)) == list(METRICS)
