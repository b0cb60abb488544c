"""Rows out of order at real daemons: late rows are dropped, counted and shown by source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sbon.local.node import LocalNode
from tests.cli.commands import run
from tests.live.world import World, finished, wait_for

pytestmark = pytest.mark.live

DELAY = "1s"
FILES = {
    "ada": (["00.000", "05.000", "04.000", "09.000", "08.000", "08.500"], 0),
    "bob": (["00.000", "05.000", "03.999", "04.000", "09.000", "07.999", "01.000"], 3),
}
"""Seconds of the rows' times, and the number of late ones: a millisecond or more beyond the delay."""


def sbon(node: LocalNode, *arguments: str) -> str:
    result = run(node.client.api, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_late_rows_are_counted_at_their_source_and_shown(world: World, tmp_path: Path) -> None:
    bob = world.cluster["bob"]
    sbon(bob, "stream", "create", "unordered", "--schema", "ts timestamp", "--event-time", "ts", "--delay", DELAY)
    for site, (seconds, _) in FILES.items():
        path = tmp_path / f"{site}.csv"
        path.write_text("ts\n" + "".join(f"2013-01-01 00:00:{second}\n" for second in seconds))
        sbon(bob, "stream", "attach", "unordered", "--node", site, "--file", str(path))

    kept = tmp_path / "kept.csv"
    info = json.loads(sbon(bob, "submit", "SELECT ts FROM unordered", "--to", str(kept), "--strategy", "consumer", "--json"))
    wait_for(lambda: finished(bob, info["id"]), "the query is finished")
    told = json.loads(sbon(bob, "stream", "show", "unordered", "--json"))
    shown = {one["source"]["name"]: (one["state"], one["rows"], one["late"]) for one in told["sources"]}
    assert shown == {site: ("ended", len(seconds) - late, late) for site, (seconds, late) in FILES.items()}
    rows = sum(len(seconds) - late for seconds, late in FILES.values())
    assert len(kept.read_text().splitlines()) == 1 + rows
