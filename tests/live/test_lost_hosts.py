"""Hosts of replicated operators are lost on real nodes, with their disks: the rows stay DuckDB's, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_cli.commands.experiments.migration import losses
from sbon_node.experiments.bench.migration.kinds import KINDS
from sbon_node.model.durability import HOT

pytestmark = pytest.mark.live
thorough = pytest.mark.thorough("hosts of live nodes that are lost with their disks")
QUICK_KIND = "tumbling"


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind == QUICK_KIND else thorough) for kind in KINDS])
def test_no_row_is_lost_or_repeated_with_a_host(tmp_path: Path, kind: str) -> None:
    (row,) = losses.run(tmp_path, (kind,), 1 if kind == QUICK_KIND else 3, lambda _: None)
    assert row["rows"] > 0
    assert (row["wrong"], row["repeated_frames"]) == (0, 0)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind == QUICK_KIND else thorough) for kind in KINDS])
def test_a_follower_goes_on_without_a_lost_or_repeated_row(tmp_path: Path, kind: str) -> None:
    count = 1 if kind == QUICK_KIND else 3
    (row,) = losses.run(tmp_path, (kind,), count, lambda _: None, HOT)
    assert row["rows"] > 0
    assert (row["wrong"], row["repeated_frames"]) == (0, 0)
    assert row["by_follower"] == count
