"""Queries that continue after errors in expressions: skipped rows are shown, counted and stored."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from sbon.local.node import LocalNode
from tests.cli.commands import run
from tests.live.world import World, finished, wait_for

pytestmark = pytest.mark.live

ROWS = (
    "ts,symbol,size\n2026-03-02T09:00:01Z,12,2\n2026-03-02T09:00:02Z,ABC,3\n2026-03-02T09:00:03Z,7,1\n2026-03-02T09:00:04Z,5,\n"
)
SQL = "SELECT symbol, CAST(symbol AS int) AS number, size / (size - 1) AS ratio FROM poison"
DELIVERED = {
    "skip": [["symbol", "number", "ratio"], ["12", "12", "2"], ["5", "5", ""]],
    "null": [["symbol", "number", "ratio"], ["12", "12", "2"], ["ABC", "", "1.5"], ["7", "7", ""], ["5", "5", ""]],
}
REASONS = {"ABC": ("CAST(symbol AS INT)", "[CAST_INVALID_INPUT]"), "7": ("size / (size - 1)", "[DIVIDE_BY_ZERO]")}


def sbon(node: LocalNode, *arguments: str) -> str:
    result = run(node.client.api, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_query_continues_as_its_option_says(world: World, tmp_path: Path) -> None:
    bob = world.cluster["bob"]
    (tmp_path / "poison.csv").write_text(ROWS)
    sbon(bob, "stream", "create", "poison", "--schema", "ts timestamp, symbol string, size int", "--event-time", "ts")
    sbon(bob, "stream", "attach", "poison", "--node", "ada", "--file", str(tmp_path / "poison.csv"))

    for on_error, lines in DELIVERED.items():
        kept = tmp_path / f"{on_error}.csv"
        told = sbon(bob, "submit", SQL, "--on-error", on_error, "--to", str(kept), "--no-follow", "--json")
        query = json.loads(told)["id"]
        wait_for(lambda query=query: finished(bob, query), f"{query} is finished")  # type: ignore[misc]
        assert list(csv.reader(kept.read_text().splitlines())) == lines
        info = bob.client.query(query)
        query_usage = bob.client.query_usage(query)
        assert (info.on_error, query_usage.skipped) == (on_error, 2 if on_error == "skip" else 0)
        assert sum(one.skipped for one in info.operators) == query_usage.skipped

    (operator,) = (one for one in bob.client.query(_newest(bob, "skip")).operators if one.skipped)
    letters = [json.loads(line) for line in Path(operator.dead_letters).read_text().splitlines()]
    assert len(letters) == 2
    for letter in letters:
        expression, reason = REASONS[json.loads(letter["row"])["symbol"]]
        assert letter["expression"].lower() == expression.lower()
        assert letter["reason"].startswith(reason)

    failed = json.loads(sbon(bob, "submit", SQL, "--to", str(tmp_path / "failed.csv"), "--no-follow", "--json"))["id"]
    wait_for(lambda: bob.client.query(failed).state == "failed", "it has failed")
    assert "--on-error skip" in bob.client.query(failed).reason


def _newest(node: LocalNode, on_error: str) -> str:
    asked = [one.id for one in node.client.queries() if "FROM poison" in one.sql]
    return next(query for query in asked if node.client.query(query).on_error == on_error)
