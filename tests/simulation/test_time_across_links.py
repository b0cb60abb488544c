"""Rules of time across links (docs/design.md, section 7), each by a query that needs it.

Two streams, ``a`` and ``b``, of rows (ts, k, v), read at sites of their own, each at its own pace. Every run is compared with
DuckDB's answer; without its rule the same run gives wrong rows, or never ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from sbon_lab.simulation.casting import SPACE
from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.engine import batch
from sbon_lab.simulation.engine.duck import run
from sbon_lab.simulation.engine.relations import Pairs
from sbon_lab.simulation.faults.plan import AtFailpoint, AtTime, Fault
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.outcome import Ended, Outcome, run_cluster
from sbon_lab.simulation.query_run import QueryRun, RunQuery, delivered
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.event_time import EventTime, Sorted
from sbon_node.engine.promise import EARLIEST_MS
from sbon_node.model.frames import END_WATERMARK_MS, NO_WATERMARK_MS
from sbon_node.model.schema import parse_schema, to_arrow
from sbon_node.planning.sql.rewrite import event_time
from sbon_node.planning.sql.rewrite.event_time import Bound
from sbon_node.streams.links import span
from sbon_node.streams.outbox import ledger
from sbon_node.streams.port import NodePort
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration

START_MS = 1_600_000_000_000
SCHEMA = parse_schema("ts timestamp, k bigint, v bigint")
Row = tuple[int, int, int]
"""Milliseconds since the start, key, value."""
LINE_BYTES = 500
Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Site:
    """A site that reads a stream's rows: ``pace`` seconds of event time each second."""

    stream: str
    rows: Sequence[Row]
    pace: float = 10.0


@dataclass(frozen=True)
class Case:
    """A query with its answer, sites and timing.

    ``late`` are the rows of ``a`` that come too late. ``early``: so many rows must have come before that many seconds have
    passed, and all of them within ``within_s``. ``fine``: a frame has two rows, and a batch one of each input. ``silent`` is cut
    off from the hub for 5 s, once an operator runs.
    """

    sql: str
    answer: str
    sites: tuple[Site, ...]
    delay_ms: int = 0
    fine: bool = False
    strategy: str = "random"
    late: tuple[Row, ...] = ()
    early: tuple[int, float] = (0, 1.0)
    within_s: float = 90.0
    faults: tuple[Fault, ...] = ()
    silent: str = ""
    start_ms: int = START_MS
    symptom: str = "came after the watermark"
    without: tuple[Patch, ...] = field(default=())


def steady(seconds: int, k: int = 0, *, every_ms: int = 500) -> list[Row]:
    return [(ms, k + ms // every_ms % 3, ms // every_ms) for ms in range(0, seconds * 1000, every_ms)]


GROUPED = (
    "SELECT window.start AS s, k, count(*) AS n FROM a GROUP BY window(ts, '10 seconds'), k",
    "SELECT time_bucket(INTERVAL 10 SECOND, ts) AS s, k, count(*) FROM a GROUP BY ALL",
)
NEAR = "a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 3 SECOND AND a.ts + INTERVAL 4 SECOND"
FAR = "a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 10 SECOND AND a.ts"
JOINED = (f"SELECT a.v, b.v AS w FROM a JOIN b ON {NEAR}",) * 2


# -- the rules, taken away -------------------------------------------------------------------------------------------------


def the_greatest_of_the_inputs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch, "least", lambda reached: max(reached, default=0), raising=True)


def silent_inputs_neither_count_nor_hold_others_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(span, "_held", lambda inputs: [False] * len(inputs))
    told = partial(filterfalse, (0, EARLIEST_MS).__contains__)
    patch.setattr(batch, "least", lambda reached: min(told(reached), default=EARLIEST_MS), raising=True)


def an_end_waits_for_the_others(patch: pytest.MonkeyPatch) -> None:
    honest = span._held

    def held(inputs: Sequence[span.InputSpan]) -> list[bool]:
        ends = [one.next is not None and one.next.watermark_ms == END_WATERMARK_MS for one in inputs]
        return [end or one for end, one in zip(ends, honest(inputs), strict=True)] if not all(ends) else honest(inputs)

    patch.setattr(span, "_held", held)


def markers_are_not_told_again(patch: pytest.MonkeyPatch) -> None:
    honest = NodePort._offer

    def offer(self: NodePort, after: Any) -> Any:
        self._incarnation = max(offset.incarnation for offset in after)
        return honest(self, after)

    patch.setattr(NodePort, "_offer", offer)


def batches_without_rows_promise_nothing(patch: pytest.MonkeyPatch) -> None:
    def promising(drafts: Any) -> Any:
        return [one if one.rows or one.ended else msgspec.structs.replace(one, watermark_ms=NO_WATERMARK_MS) for one in drafts]

    _with_drafts(patch, promising)


def every_frame_of_a_batch_carries_its_watermark(patch: pytest.MonkeyPatch) -> None:
    honest = ledger.number_frames

    def number_frames(stream: str, drafts: Any, before: Any, *, each_carries: bool) -> Any:
        drafts = [*(msgspec.structs.replace(one, ended=False) for one in drafts[:-1]), *drafts[-1:]]
        return honest(stream, drafts, before, each_carries=True)

    patch.setattr(ledger, "number_frames", number_frames)


def _with_drafts(patch: pytest.MonkeyPatch, other: Callable[[Any], Any]) -> None:
    honest = NodePort.write

    async def write(self: NodePort, batch: int, offsets: Any, drafts: Any) -> None:
        await honest(self, batch, offsets, other(drafts))

    patch.setattr(NodePort, "write", write)


def markers_lie_at_the_watermark(patch: pytest.MonkeyPatch) -> None:
    honest = batch.reached_ms

    def reached_ms(offset: Any, lag_ms: int) -> int | None:
        reached = honest(offset, lag_ms)
        return None if reached is None else reached + 1

    patch.setattr(batch, "reached_ms", reached_ms)


def joins_lag_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Bound, "left_lag_ms", property(lambda self: 0))
    patch.setattr(Bound, "right_lag_ms", property(lambda self: 0))


def outer_joins_promise_what_they_are_promised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pairs, "watermark_ms", Pairs._input_ms)


def outer_joins_hold_nothing_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(event_time, "held_ms", lambda relation: 0)


def no_delay_at_the_source(patch: pytest.MonkeyPatch) -> None:
    def watermark_of(self: EventTime, greatest_ms: int | None) -> int:
        return NO_WATERMARK_MS if greatest_ms is None else greatest_ms

    patch.setattr(EventTime, "watermark_of", watermark_of)


def late_rows_pass_the_source(patch: pytest.MonkeyPatch) -> None:
    honest = EventTime.sort

    def sort(self: EventTime, rows: Any) -> Sorted:
        return replace(honest(self, rows), kept=range(rows.num_rows), late=0)

    patch.setattr(EventTime, "sort", sort)


# -- the cases -------------------------------------------------------------------------------------------------------------

DISORDERED = sorted(steady(20), key=lambda row: row[0] - 4900 * (row[2] % 14 == 13))
LATE = ((15_000, 1, 901), (31_499, 2, 902))

CASES = {
    "a slow branch": Case(
        *GROUPED,
        (Site("a", steady(60), 30.0), Site("a", steady(60, 5), 4.0)),
        without=(the_greatest_of_the_inputs,),
    ),
    "a silent branch": Case(
        *GROUPED,
        (Site("a", steady(60)), Site("a", steady(60, 5))),
        strategy="consumer",
        silent="s1",
        without=(silent_inputs_neither_count_nor_hold_others_back,),
    ),
    "a branch that has ended beside one that continues": Case(
        *GROUPED,
        (Site("a", steady(4), 0.0), Site("a", steady(60, 5), 3.0)),
        early=(6, 12.0),
        symptom="rows after 12 s",
        without=(an_end_waits_for_the_others,),
    ),
    "a branch that ends, with a restart after": Case(
        *JOINED,
        (Site("a", steady(20)), Site("b", steady(4))),
        strategy="consumer",
        faults=tuple(Fault(AtFailpoint("hub", "commit", count), "kill-engine", "hub") for count in range(1, 200)),
        within_s=120.0,
        symptom="not finished",
        without=(markers_are_not_told_again,),
    ),
    "a rare filter before a join": Case(
        *(f"SELECT a.v, b.v AS w FROM a LEFT JOIN b ON {NEAR} AND b.v = 3",) * 2,
        (Site("a", steady(60), 3.0), Site("b", steady(60), 3.0)),
        early=(40, 15.0),
        symptom="rows after 15 s",
        without=(batches_without_rows_promise_nothing,),
    ),
    "an outer join before an aggregate": Case(
        f"SELECT window.start AS s, count(b.v) AS n, count(*) AS m FROM a LEFT JOIN b ON {NEAR} "
        "GROUP BY window(a.ts, '5 seconds')",
        f"SELECT time_bucket(INTERVAL 5 SECOND, a.ts) AS s, count(b.v), count(*) FROM a LEFT JOIN b ON {NEAR} GROUP BY s",
        (Site("a", steady(60), 8.0), Site("b", steady(60)[::3], 5.0)),
        without=(outer_joins_promise_what_they_are_promised,),
    ),
    "an outer join before two aggregates": Case(
        "SELECT window.start AS s, max(n) AS m FROM (SELECT window, a.k, count(*) AS n FROM a LEFT JOIN b ON a.k = b.k AND b.ts "
        "BETWEEN a.ts - INTERVAL 10 SECOND AND a.ts GROUP BY window(a.ts, '1 second'), a.k) GROUP BY window",
        "SELECT s, max(n) FROM (SELECT time_bucket(INTERVAL 1 SECOND, a.ts) AS s, a.k, count(*) AS n FROM a LEFT JOIN b ON "
        "a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 10 SECOND AND a.ts GROUP BY ALL) GROUP BY s",
        (Site("a", steady(60), 6.0), Site("b", steady(60)[::3], 5.0)),
        without=(outer_joins_hold_nothing_back,),
    ),
    "an outer join before an outer join": Case(
        *(
            f"SELECT x.v, x.w, c.v AS u FROM (SELECT a.ts, a.k, a.v, b.v AS w FROM a LEFT JOIN b ON {FAR}) AS x LEFT JOIN b AS c "
            "ON x.k = c.k AND c.v % 5 = 0 AND c.ts BETWEEN x.ts AND x.ts + INTERVAL 1 SECOND",
        )
        * 2,
        (Site("a", steady(30), 6.0), Site("b", steady(30)[::3], 5.0)),
    ),
    "a join before an aggregate": Case(
        f"SELECT window.start AS s, count(*) AS n FROM a JOIN b ON {NEAR} GROUP BY window(a.ts, '1 second')",
        f"SELECT time_bucket(INTERVAL 1 SECOND, a.ts) AS s, count(*) FROM a JOIN b ON {NEAR} GROUP BY s",
        (Site("a", steady(60), 20.0), Site("b", steady(60), 4.0)),
        without=(joins_lag_nothing,),
    ),
    "a batch split over several frames": Case(
        "SELECT window.start AS s, count(*) AS n FROM (SELECT window, k, count(*) AS c FROM a GROUP BY window(ts, '1 second'), "
        "k) GROUP BY window",
        "SELECT s, count(*) FROM (SELECT DISTINCT time_bucket(INTERVAL 1 SECOND, ts) AS s, k FROM a) GROUP BY s",
        (Site("a", steady(30), 10.0), Site("a", steady(30, 1), 7.0)),
        fine=True,
        without=(every_frame_of_a_batch_carries_its_watermark,),
    ),
    "equal timestamps in a join": Case(
        *("SELECT a.v, b.v AS w FROM a JOIN b ON a.k = b.k AND a.ts = b.ts",) * 2,
        (Site("a", [(ms // 5000 * 5000, k, v) for ms, k, v in steady(20)]), Site("b", steady(20))),
        fine=True,
        without=(markers_lie_at_the_watermark,),
    ),
    "sources replayed at different speeds": Case(
        *JOINED,
        (Site("a", steady(60), 60.0), Site("a", steady(60, 1), 3.0), Site("b", steady(60), 12.0), Site("b", steady(60, 2), 0.0)),
        without=(the_greatest_of_the_inputs,),
    ),
    "rows out of order, up to the delay": Case(
        *JOINED,
        (Site("a", DISORDERED, 3.0), Site("b", steady(20)[::12], 100.0)),
        delay_ms=5000,
        fine=True,
        without=(no_delay_at_the_source,),
    ),
    "rows out of order, beyond the delay": Case(
        *GROUPED,
        (Site("a", [*steady(60)[:80], *LATE, *steady(60)[80:]]), Site("a", steady(60, 7))),
        delay_ms=2000,
        late=LATE,
        without=(late_rows_pass_the_source,),
    ),
}

EARLY = ("a slow branch", "an outer join before two aggregates", "equal timestamps in a join")
"""The cases that ``make test`` plays before 1970 too."""
STARTS = [
    pytest.param(name, start_ms, id=f"{name}-{year}", marks=pytest.mark.only_in_test_all("cases before 1970") if later else ())
    for name in CASES
    for year, start_ms, later in ((2020, START_MS, False), (1970, -10_000, name not in EARLY))
]


@pytest.mark.one_part_per_commit("cases of the passage of time", parts=6)
@pytest.mark.parametrize("name, start_ms", STARTS)
def test_the_rows_are_those_of_duckdb(name: str, start_ms: int) -> None:
    """Some cases begin before 1970, where the engine's own watermark does."""
    outcome = played(replace(CASES[name], start_ms=start_ms))
    assert not outcome.failure, "\n".join([*outcome.trace[-40:], outcome.failure])


RULES = [(name, rule) for name, case in CASES.items() for rule in case.without]
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("rules left out of the passage of time")


@pytest.mark.parametrize(
    "name, rule", [pytest.param(name, rule, marks=() if name in EARLY else ONLY_IN_TEST_ALL) for name, rule in RULES]
)
def test_without_its_rule_it_fails(name: str, rule: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    rule(monkeypatch)
    assert re.search(CASES[name].symptom, played(CASES[name]).failure)


# -- how they are played ---------------------------------------------------------------------------------------------------


def played(case: Case, seed: int = 1) -> Outcome:
    nodes = (*(f"s{number}" for number in range(len(case.sites))), "hub")
    connectors, streams = ConnectorSettings(linger_s=0.2), CONFIG.streams
    if case.fine:
        connectors = ConnectorSettings(linger_s=0.0, block_bytes=1024)
        streams = msgspec.structs.replace(streams, batch_span_frames=1)
    config = msgspec.structs.replace(CONFIG, connectors=connectors, streams=streams, space=SPACE)

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        return SimulatedCluster(loop, seed, nodes, root, config=config)

    async def query_run(cluster: SimulatedCluster, root: Path) -> Ended:
        sources = [_source(site, case.start_ms, number, root) for number, site in enumerate(case.sites)]
        declared = [StreamDeclaration(name=n, schema=SCHEMA, event_time="ts", delay_ms=case.delay_ms) for n in ("a", "b")]
        query = RunQuery("query", case.sql, case.strategy, decompose="never")
        asked = QueryRun((query,), tuple(declared), tuple(sources), "hub", faults=case.faults)
        watching = [_punctual(cluster, root, *case.early), _finished(cluster, case.within_s)]
        watching += [_silenced(cluster, case.silent)] if case.silent else []
        watched = [cluster.loop.create_task(watch) for watch in watching]
        try:
            rows = await asked.run(cluster, root)
        finally:
            for task in watched:
                task.cancel()
        cluster.watch.checker.delivered(rows[query.name], _answer(case))
        late = sum(
            source.late
            for source in (await cluster.answer("hub", cluster.nodes["hub"].daemon.hosting.sources.describe("a"))).sources
        )
        assert late == len(case.late)
        return Ended(0, "finished")

    return run_cluster(build, query_run, seed=seed, max_time_s=600.0, replay="this test")


async def _punctual(cluster: SimulatedCluster, root: Path, least: int, after_s: float) -> None:
    await cluster.clock.sleep(after_s)
    if (rows := len(delivered(root, "query"))) < least:
        cluster.fail(f"{rows} rows after {after_s:g} s")


async def _silenced(cluster: SimulatedCluster, node: str) -> None:
    await cluster.until(lambda: bool(cluster.nodes["hub"].operators()))
    cluster.fault_injector.inject(Fault(AtTime(0.0), "cut", node, "hub", down_s=5.0))


async def _finished(cluster: SimulatedCluster, within_s: float) -> None:
    await cluster.clock.sleep(within_s)
    cluster.fail(f"not finished after {within_s:g} s")


def _source(site: Site, start_ms: int, number: int, root: Path) -> SourceDeclaration:
    path = root / f"{number}.ndjson"
    rows = [{"ts": _time(start_ms + ms).isoformat(), "k": k, "v": v} for ms, k, v in site.rows]
    path.write_text("".join(json.dumps(row).ljust(LINE_BYTES) + "\n" for row in rows))
    options = {"path": str(path), "replay": site.pace}
    return SourceDeclaration(stream=site.stream, name=f"s{number}", node=f"s{number}", connector="file", options=options)


def _answer(case: Case) -> list[tuple[object, ...]]:
    tables = {}
    for name in ("a", "b"):
        rows = [row for site in case.sites if site.stream == name for row in site.rows if row not in case.late]
        columns = [[_time(case.start_ms + ms) for ms, _, _ in rows], [k for _, k, _ in rows], [v for _, _, v in rows]]
        tables[name] = pa.table(columns, schema=to_arrow(SCHEMA))
    return [tuple(row.values()) for row in run(case.answer, tables)[1].to_pylist()]


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
