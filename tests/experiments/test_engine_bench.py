"""The engine's benchmark: rows of frames as they are meant, and the whole of it on real Spark, quickly."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable

import duckdb
import psutil
import pyarrow as pa
import pytest

from sbon_lab.bench import footprint
from sbon_lab.bench.bare import BareFlow
from sbon_lab.bench.bare_messages import QueryFailed, RowsOut
from sbon_lab.bench.rows import Outputs, Rows
from sbon_lab.bench.work import (
    AGGREGATE,
    FEW_KEYS,
    JOIN,
    Pass,
    Work,
    aggregate_passes,
    few_keys_passes,
    join_passes,
)
from sbon_node.base.clock import Clock
from sbon_node.connectors.formats.frames import decode
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.errors import SbonError

METRICS = [
    "start_s",
    "latency_p50_ms",
    "latency_p95_ms",
    "filter_rows_s",
    "aggregate_rows_s",
    "join_rows_s",
    "join_few_keys_rows_s",
    "idle_cores",
    "memory_mb",
]
CLOSED = "SELECT DISTINCT ts // 10_000 AS w, k FROM in0 WHERE (w + 1) * 10_000 < (SELECT max(ts) FROM in0)"
JOINED = "SELECT * FROM in0 JOIN in1 ON in0.k = in1.k AND in1.ts BETWEEN in0.ts - 10_000 AND in0.ts"


def test_frames_hold_the_rows_they_say_and_one_that_passes_at_least() -> None:
    rows = Rows(7, 25, 10)
    tables = [decode(draft.payload) for draft in rows.drafts]
    assert [table.num_rows for table in tables] == [draft.rows for draft in rows.drafts] == [10, 10, 5]
    assert [sum(v > 0.5 for v in table["v"].to_pylist()) for table in tables] == rows.passing
    assert min(rows.passing) >= 1
    assert [draft.payload for draft in rows.drafts] == [draft.payload for draft in Rows(7, 25, 10).drafts]


@pytest.mark.parametrize(
    "work, made, sql",
    [(AGGREGATE, aggregate_passes, CLOSED), (JOIN, join_passes, JOINED), (FEW_KEYS, few_keys_passes, JOINED)],
)
def test_a_pass_says_how_many_rows_come_out_of_it(work: Work, made: Callable[[int, int, int], list[Pass]], sql: str) -> None:
    passes = made(3, 50_000, 3)
    assert [one.rows for one in passes] == [50_000] * 3
    found = []
    for count in range(1, 4):
        database = duckdb.connect()
        for position in range(len(work.inputs)):
            tables = [decode(draft.payload) for one in passes[:count] for draft in one.drafts[position]]
            database.register("arrived", pa.concat_tables(tables))
            database.execute(f"CREATE TABLE in{position} AS SELECT epoch_ms(ts) - 1_356_998_400_000 AS ts, k, v FROM arrived")
        found.append(len(database.sql(sql).fetchall()))
    assert [sum(one.out for one in passes[:count]) for count in range(1, 4)] == found
    assert 0 < found[0] < found[1] < found[2]


async def test_a_wait_for_rows_ends_if_none_will_come() -> None:
    flow = BareFlow(1, Clock.real(), StreamSettings())
    await flow.answer(RowsOut(operator="q", rows=3, at_s=1.0))
    waiting = asyncio.ensure_future(flow.outputs.wait(4))
    await asyncio.sleep(0)
    await flow.answer(QueryFailed(operator="q", reason="division by zero"))
    with pytest.raises(SbonError, match="3 of 4 rows came out, then: division by zero"):
        await waiting
    assert await flow.outputs.wait(3) == 1.0


async def test_rows_are_out_when_the_batch_that_completes_them_is() -> None:
    outputs = Outputs()
    outputs.add(3, 1.0)
    waiting = asyncio.ensure_future(outputs.wait(4))
    await asyncio.sleep(0)
    assert not waiting.done()
    outputs.add(0, 2.0)
    outputs.add(4, 3.0)
    assert [await outputs.wait(3), await waiting, await outputs.wait(7)] == [1.0, 3.0, 3.0]


def test_a_process_that_began_meanwhile_counts_from_its_begin_and_one_that_ended_not() -> None:
    assert footprint.cpu_since({1: 2.0, 2: 5.0}, {1: 3.0, 3: 0.5}) == 1.5
    assert footprint.memory_mb([psutil.Process(os.getpid())]) > 1


@pytest.mark.needs_idle_machine
@pytest.mark.live
@pytest.mark.only_in_test_all("benchmarks on Spark")
def test_every_figure_is_given_for_both_sides() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sbon_cli.main", "bench", "engine", "--quick", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert result["name"] == "engine"
    assert [row["metric"] for row in result["rows"]] == METRICS
    for row in result["rows"]:
        assert set(row) == {"metric", "ours", "bare", "ratio"}
        assert row["ours"] > 0
        assert row["bare"] > 0
        assert row["ratio"] == pytest.approx(row["ours"] / row["bare"], rel=0.1)
