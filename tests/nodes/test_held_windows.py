"""The source that holds back a query's windows is named in the query's reason, with the time since when."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.queries.describing.describe import sources_that_hold
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.operators import PlannedInput
from sbon_protocol.api.plan import Plan, PlannedOperator, PlannedSource, Rate
from sbon_protocol.api.streams import SourceInfo
from tests.nodes.clusters import declare, in_cluster, source_at, state_of, submitted

WINDOWS = "SELECT window(ts, '1 minute').start AS w, count(*) AS n FROM numbers GROUP BY window(ts, '1 minute')"
HELD = re.compile(r"source numbers/at-c at c holds windows back: at watermark [-:0-9 ]+ UTC since [-:0-9 ]+ UTC")
RATE = Rate(rows_s=1.0, bytes_s=1.0)
NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("sql, is_held", [(WINDOWS, True), ("SELECT id FROM numbers", False)])
def test_a_silent_source_is_named_while_another_one_goes_on(tmp_path: Path, sql: str, is_held: bool) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1_000_000, rate=3.0), source_at("c", rows=2, rate=1e-6))
        await submitted(cluster, "a", tmp_path / "out.csv", sql=sql)
        await cluster.clock.sleep(60.0)
        reason = (await state_of(cluster, "a")).reason
        assert bool(HELD.search(reason)) is is_held, reason
        assert "at-b" not in reason

    in_cluster(tmp_path, "abc", test)


def source(name: str, **told: object) -> SourceInfo:
    declared = SourceDeclaration(stream="s", name=name, node="n", connector="http")
    return msgspec.structs.replace(SourceInfo(source=declared, state="running"), **told)


def windows_over(infos: Sequence[SourceInfo]) -> Plan:
    read = tuple(PlannedInput(stream=info.source.id, schema=(), event_time="ts") for info in infos)
    operator = PlannedOperator(id="q.o1", fragment="", inputs=read, schema=(), rate=RATE)
    planned = tuple(PlannedSource(source=info.source, schema=(), rate=RATE) for info in infos)
    return Plan(text="", sources=planned, operators=(operator,), outputs=("q.o1",), schema=())


AHEAD = source("first", watermark_ms=60_000, advanced_ms=NOW_MS)


@pytest.mark.parametrize(
    "second, held",
    [
        ({"advanced_ms": NOW_MS - 35_000}, "without a row since 2023-11-14 22:12:45 UTC"),
        (
            {"watermark_ms": 0, "advanced_ms": NOW_MS - 10_000},
            "at watermark 1970-01-01 00:00:00 UTC since 2023-11-14 22:13:10 UTC",
        ),
        ({"watermark_ms": -(2**53), "advanced_ms": 0}, f"at watermark {-(2**53)} ms since 1970-01-01 00:00:00 UTC"),
        ({"watermark_ms": 1_000, "advanced_ms": NOW_MS - 9_999}, ""),
        ({"watermark_ms": 60_000, "advanced_ms": 0}, ""),
        ({"state": "ended", "watermark_ms": 1_000, "advanced_ms": 0}, ""),
        ({"trouble": "no such file", "advanced_ms": 0}, ""),
        ({"state": "unreachable"}, ""),
        ({"state": "idle"}, "without a row"),
    ],
)
def test_sources_that_are_quiet_while_others_go_on_hold_windows(second: dict[str, object], held: str) -> None:
    infos = (AHEAD, source("second", **second))
    expected = [f"source s/second at n holds windows back: {held}"] if held else []
    assert list(sources_that_hold(windows_over(infos), infos, NOW_MS)) == expected


def test_a_source_is_said_to_hold_what_an_ended_one_has_left() -> None:
    infos = (
        source("file", state="ended", watermark_ms=60_000, advanced_ms=NOW_MS - 90_000),
        source("live", advanced_ms=NOW_MS - 12_000),
    )
    assert [line.split(":")[0] for line in sources_that_hold(windows_over(infos), infos, NOW_MS)] == [
        "source s/live at n holds windows back"
    ]
