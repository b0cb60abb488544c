"""Checkpoints as the loss of power leaves them, mended and resumed by Spark itself: every row once, as DuckDB has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from tests.engine.shared.bench import Bench
from tests.engine.toy_port import ToyPort

pytestmark = pytest.mark.live
in_one_loop = pytest.mark.asyncio(loop_scope="session")
ONE_PART = pytest.mark.one_part_per_commit("torn checkpoints on Spark", parts=8)
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("torn checkpoints on Spark")

BATCHES, ROWS = 4, 50
FRAGMENT = "SELECT k % 7 AS k, count(*) AS n FROM in0 GROUP BY k % 7, window(ts, '1 minute')"
INPUTS = (InputSpec(stream="in", node="n", schema=(Column("k", "bigint"), Column("ts", "timestamp")), event_time="ts"),)


def frame(number: int) -> pa.Table:
    numbers = range(number * ROWS, (number + 1) * ROWS)
    times = pa.array([1_000_000 * k for k in numbers], pa.timestamp("us", "UTC"))
    return pa.table({"k": pa.array(numbers, pa.int64()), "ts": times})


def empty(*names: str) -> Callable[[Path], None]:
    return lambda checkpoint: [(checkpoint / name).write_bytes(b"") for name in names] and None


def everything(checkpoint: Path) -> None:
    for path in checkpoint.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")


def without(*names: str) -> Callable[[Path], None]:
    return lambda checkpoint: [(checkpoint / name).unlink() for name in names] and None


def newest(checkpoint: Path, log: str) -> Path:
    return max((path for path in (checkpoint / log).iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


@pytest.mark.parametrize(
    "name, tear, shown",
    [
        ("plan", lambda checkpoint: newest(checkpoint, "offsets").write_bytes(b""), -1),
        ("commit", lambda checkpoint: newest(checkpoint, "commits").write_bytes(b""), -1),
        pytest.param(
            "commit-cut", lambda checkpoint: newest(checkpoint, "commits").write_bytes(b"v1"), -1, marks=ONLY_IN_TEST_ALL
        ),
        pytest.param("id-empty", empty("metadata"), 0, marks=ONLY_IN_TEST_ALL),
        ("id-gone", without("metadata"), 0),
    ],
)
@ONE_PART
@in_one_loop
async def test_an_operator_resumes_from_it(bench: Bench, name: str, tear: Callable[[Path], None], shown: int) -> None:
    spec = OperatorSpec(id=name, query="q", fragment=FRAGMENT, inputs=INPUTS, schema=())
    port, checkpoint = ToyPort(), bench.checkpoint(name)
    await bench.instantiate(spec, port)
    for number in range(BATCHES):
        await port.feed(frame(number))
        await port.wait_visible(port.visible + 1)
    await bench.engine.destroy(name)
    tear(checkpoint)
    port.visible += shown

    await bench.instantiate(spec, port)
    await port.feed(frame(BATCHES), ended=True)

    assert counts(await port.wait_ended()) == oracle(BATCHES + 1)
    assert bench.states.count(name, "starting") == 2, bench.states.told[name]
    await bench.engine.destroy(name)


@pytest.mark.parametrize(
    "name, tear",
    [
        ("first-plan", empty("offsets/0")),
        pytest.param(
            "first-state",
            lambda checkpoint: [path.write_bytes(b"") for path in checkpoint.glob("state/**/*") if path.is_file()],
            marks=ONLY_IN_TEST_ALL,
        ),
        pytest.param("first-everything", everything, marks=ONLY_IN_TEST_ALL),
        ("first-commit", empty("commits/0")),
    ],
)
@ONE_PART
@in_one_loop
async def test_an_unread_first_batch_is_planned_again(bench: Bench, name: str, tear: Callable[[Path], None]) -> None:
    spec = OperatorSpec(id=name, query="q", fragment=FRAGMENT, inputs=INPUTS, schema=())
    port, checkpoint = ToyPort(), bench.checkpoint(name)
    await bench.instantiate(spec, port)
    await port.feed(frame(0))
    await port.wait_visible(0)
    await bench.engine.destroy(name)
    for log in ("offsets", "commits"):
        for path in (checkpoint / log).iterdir():
            if path.name != "0":
                path.unlink()
    tear(checkpoint)
    if name == "first-state":
        (checkpoint / "commits" / "0").unlink()
    port.visible = -1

    await bench.instantiate(spec, port)
    await port.feed(frame(1), ended=True)

    assert counts(await port.wait_ended()) == oracle(2)
    assert bench.states.count(name, "starting") == 2, bench.states.told[name]
    await bench.engine.destroy(name)


def counts(rows: pa.Table) -> list[tuple[int, int]]:
    return sorted((row["k"], row["n"]) for row in rows.to_pylist())


def oracle(frames: int) -> list[tuple[int, int]]:
    sql = f"SELECT k % 7 AS k, count(*) AS n FROM range({frames * ROWS}) AS t(k) GROUP BY k % 7, k // 60 ORDER BY ALL"
    return [(k, n) for k, n in duckdb.sql(sql).fetchall()]
