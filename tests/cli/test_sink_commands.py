"""``sbon query sink``: what is asked of the node, and what is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sbon_protocol.api.delivery import SinkReport
from sbon_protocol.api.queries import SinkInfo, SinkRequest, SinkSpec
from tests.cli.commands import run


def test_adding_a_sink(api: str, node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = run(api, "query", "sink", "add", "q1", "--to", "rows.csv", "--consumer", "paris", "--from", "now").stdout
    assert said == "sink2 of q1 at paris running, after the first 1,200 rows\n"
    sink = SinkSpec(kind="file", options={"path": str(tmp_path / "rows.csv")})
    assert node.sinks.added == [("q1", SinkRequest(sink=sink, consumer="paris", begin="now"))]
    added = json.loads(run(api, "query", "sink", "add", "q1", "--to", "follow:", "--json").stdout)
    assert (added["id"], added["begins_after"]) == ("sink2", 1200)
    assert node.sinks.added[-1] == ("q1", SinkRequest(sink=SinkSpec()))
    refused = run(api, "query", "sink", "add", "q1", "--to", "blackhole:", "--from", "earliest")
    assert (refused.exit_code, "the first 7 frames are gone" in refused.stderr) == (1, True)
    assert run(api, "query", "sink", "add", "q1").exit_code == 2
    assert run(api, "query", "sink", "add", "q1", "--to", "x.csv", "--from", "yesterday").exit_code == 2


def test_removing_a_sink(api: str, node: Any) -> None:
    assert run(api, "query", "sink", "remove", "q1", "sink2").stdout == "sink2 of q1 removed\n"
    unknown = run(api, "query", "sink", "remove", "q1", "sink5")
    assert (unknown.exit_code, "it has: sink2" in unknown.stderr) == (1, True)
    assert node.sinks.removed == [("q1", "sink2"), ("q1", "sink5")]


def test_sinks_are_listed_and_shown_with_their_query(api: str, node: Any) -> None:
    table = SinkSpec(kind="postgres", options={"url": "postgres://me@db/results", "table": "late"})
    paused = SinkReport(state="paused: no answer from db")
    node.sinks.shown = (
        SinkInfo(id="sink2", node="paris", sink=table, state="running", rows=7, begins_after=3, delivery=paused),
        SinkInfo(id="sink3", node="b", sink=SinkSpec(), state="failed", reason="it fell behind", temporary=True),
    )
    lines = run(api, "query", "sink", "list", "q1").stdout.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["sink", "sink2", "sink3"]
    assert "postgres postgres://me@db/results late" in lines[-2]
    assert "paused: no answer from db" in lines[-2]
    assert "after the first 3 rows" in lines[-2]
    assert "failed: it fell behind" in lines[-1]
    listed = [json.loads(line) for line in run(api, "query", "sink", "list", "q1", "--json").stdout.splitlines()]
    assert [one["id"] for one in listed] == ["sink", "sink2", "sink3"]
    assert "it fell behind" in run(api, "query", "show", "q1").stdout
