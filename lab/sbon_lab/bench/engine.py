"""The engine against bare Spark: start, latency at low rate, rows a second, idle cost, memory (``sbon bench engine``).

Both sides read the same frames with the same reader and SQL under the same streaming settings, in the same run on this
machine. The joins of bare Spark are written by hand, with the time buckets that ours have. Starts and passes alternate; the
low-rate and idle parts run side after side. Neither start includes a streaming query's first batch. Bare Spark reads from memory
and hands its rows to a Python function. Our side goes from an outbox over a link to the engine on another node, which stores,
commits and publishes its output and sends it back over a link.
"""

import asyncio
import os
import random
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import psutil
import uvloop

from sbon_lab.bench import footprint
from sbon_lab.bench.bare import Bare
from sbon_lab.bench.rows import Outputs, Rows
from sbon_lab.bench.sites import Ours
from sbon_lab.bench.work import (
    AGGREGATE,
    FEW_KEYS,
    FILTER,
    JOIN,
    Pass,
    Work,
    aggregate_passes,
    few_keys_passes,
    filter_passes,
    join_passes,
)
from sbon_lab.experiments.harness.experiment import Found, Notify, Row, ignore
from sbon_node.base.clock import Clock
from sbon_node.base.logging.output import LogSettings, configure
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.jvm.archive import make_archive
from sbon_node.model.frames import FrameDraft

IDLE_OPERATORS = 5
_TRICKLE_ROWS = 10
_TRICKLE_WARM_UP = 10


class Measured(NamedTuple):
    """Work with a measured throughput, over passes of ``share`` of the rows."""

    work: Work
    passes: Callable[[int, int, int], list[Pass]]
    share: float = 1.0


WORKS = {
    "filter": Measured(FILTER, filter_passes),
    "aggregate": Measured(AGGREGATE, aggregate_passes),
    "join": Measured(JOIN, join_passes, 0.2),  # a row takes several times as long on either side
    "join_few_keys": Measured(FEW_KEYS, few_keys_passes, 0.2),
}


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the benchmark: ``turns`` of starts and passes on each side; the medians count."""

    turns: int = 3
    rows: int = 1_500_000
    """Rows of a pass through a filter; an uncounted pass comes first."""
    samples: int = 60
    """Number of frames in the low-rate measurement."""
    every_s: float = 0.3
    idle_s: float = 20.0
    settle_s: float = 5.0


QUICK = Size(turns=1, rows=60_000, samples=10, every_s=0.2, idle_s=4.0, settle_s=0.5)


class Flow(Protocol):
    """An operator with its path, from a frame's arrival until its rows are out."""

    outputs: Outputs

    async def arrive(self, drafts: Sequence[Sequence[FrameDraft]]) -> None:
        """Deliver frames of each input."""
        ...


class Side(Protocol):
    """A side of the comparison."""

    @property
    def pid(self) -> int: ...

    async def start(self, operator: str, reader: Literal["simple", "partitioned"], work: Work) -> Flow: ...

    async def stop(self, operator: str) -> None: ...


def run(*, quick: bool = False, seed: int = 1, notify: Notify = ignore, found: Found = ignore) -> dict[str, Any]:
    """Return ``{"name": "engine", "rows": [...]}``, a row for each ``metric`` with ``ours``, ``bare`` and their ``ratio``."""
    configure(LogSettings(level="warning"))
    make_archive(EngineSettings())
    return {"name": "engine", "rows": uvloop.run(_rows(QUICK if quick else Size(), seed, notify, found))}


def _row(metric: str, ours: float, bare: float) -> dict[str, Any]:
    return {"metric": metric, "ours": round(ours, 4), "bare": round(bare, 4), "ratio": round(ours / bare, 3) if bare else None}


async def _rows(size: Size, seed: int, notify: Notify, found: Found) -> list[Row]:
    clock, rows = Clock.real(), list[Row]()

    def measured(metric: str, ours: float, bare: float) -> None:
        rows.append(_row(metric, ours, bare))
        found(rows[-1])

    notify("starts")
    starts = [(await _ours_start_s(clock), await _bare_start_s(clock)) for _ in range(size.turns)]
    measured("start_s", *(statistics.median(of_side) for of_side in zip(*starts, strict=True)))
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sbon-bench-"))
        ours, bare = Ours(Path(folder), clock), Bare(clock)
        await stack.enter_async_context(bare.running("tuned"))
        await stack.enter_async_context(ours.running())
        notify("latency and memory")
        trickles = [await _trickle(side, clock, size, seed) for side in (ours, bare)]
        for percent in (50, 95):
            measured(f"latency_p{percent}_ms", *(_percentile(latency, percent) for latency, _ in trickles))
        for name in WORKS:
            notify(f"rows a second: {name}")
            rates = await _throughput(name, (ours, bare), clock, size, seed)
            measured(f"{name}_rows_s", *(statistics.median(of_side) for of_side in rates))
        notify("idle operators")
        measured("idle_cores", *[await _idle_cores(side, clock, size, seed) for side in (ours, bare)])
        measured("memory_mb", *(memory for _, memory in trickles))
    return rows


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


# -- start ------------------------------------------------------------------------------------------------------------


async def _ours_start_s(clock: Clock) -> float:
    """Return the seconds of a cold start to the engine's first answer; the class archive is there, as after installation."""
    with tempfile.TemporaryDirectory(prefix="sbon-bench-") as folder:
        ours = Ours(Path(folder), clock)
        began_s = clock.now()
        async with ours.running():
            return clock.now() - began_s


async def _bare_start_s(clock: Clock) -> float:
    """Return the seconds of a cold start to the first job, with Spark's usual start."""
    began_s = clock.now()
    async with Bare(clock).running("plain"):
        return clock.now() - began_s


# -- latency ----------------------------------------------------------------------------------------------------------


async def _trickle(side: Side, clock: Clock, size: Size, seed: int) -> tuple[list[float], float]:
    """Return each small frame's milliseconds from arrival until its rows are out, and the engine's megabytes.

    Frames arrive regardless of work in progress. The megabytes are those of the engine's processes with this single operator.
    """
    rng = random.Random(seed)
    rows = Rows(seed, (size.samples + _TRICKLE_WARM_UP) * _TRICKLE_ROWS, _TRICKLE_ROWS)
    flow = await side.start("trickle", "simple", FILTER)
    await flow.arrive([rows.drafts[:1]])
    await flow.outputs.wait(rows.passing[0])  # the first batch loads and compiles classes
    arrivals = [clock.now()]
    for draft in rows.drafts[1:]:
        arrivals.append(clock.now())
        await flow.arrive([[draft]])
        await clock.sleep(size.every_s * rng.uniform(0.7, 1.3))
    latencies, total = [], 0
    for arrived_s, passing in zip(arrivals, rows.passing, strict=True):
        total += passing
        latencies.append(1000 * (await flow.outputs.wait(total) - arrived_s))
    memory = footprint.memory_mb(footprint.family(side.pid))
    await side.stop("trickle")
    return latencies[_TRICKLE_WARM_UP:], memory


# -- throughput -------------------------------------------------------------------------------------------------------


async def _throughput(name: str, sides: Sequence[Side], clock: Clock, size: Size, seed: int) -> list[list[float]]:
    """Return rows a second of each pass, by side; the sides alternate, so that both see the same noise of the machine."""
    work, make, share = WORKS[name]
    passes = make(seed, round(size.rows * share), size.turns + 1)
    flows = [await side.start(name, "partitioned", work) for side in sides]
    rates: list[list[float]] = [[] for _ in sides]
    for turn, rows in enumerate(passes):
        for flow, rates_of_flow in zip(flows, rates, strict=True):
            rate = await _pass(flow, clock, rows)
            if turn:
                rates_of_flow.append(rate)
    for side in sides:
        await side.stop(name)
    return rates


async def _pass(flow: Flow, clock: Clock, rows: Pass) -> float:
    rows_due = flow.outputs.rows + rows.out
    began_s = clock.now()
    _, ended_s = await _both(flow.arrive(rows.drafts), flow.outputs.wait(rows_due))
    return rows.rows / (ended_s - began_s)


async def _both(arrive: Awaitable[None], out: Awaitable[float]) -> tuple[None, float]:
    return await asyncio.gather(arrive, out)


# -- idle -------------------------------------------------------------------------------------------------------------


async def _idle_cores(side: Side, clock: Clock, size: Size, seed: int) -> float:
    """Return the cores that idle operators cost in the engine's processes and in this process, which answers their polls."""
    names = [f"idle-{number}" for number in range(IDLE_OPERATORS)]
    rows = Rows(seed, 10)
    for name in names:
        flow = await side.start(name, "simple", FILTER)
        await flow.arrive([rows.drafts])
        await flow.outputs.wait(sum(rows.passing))
    await clock.sleep(size.settle_s)  # the last batches' effects: commits, reports, garbage collections
    before, began_s = _cpu_s(side), clock.now()
    await clock.sleep(size.idle_s)
    cores = footprint.cpu_since(before, _cpu_s(side)) / (clock.now() - began_s)
    for name in names:
        await side.stop(name)
    return cores


def _cpu_s(side: Side) -> dict[int, float]:
    return footprint.cpu_s([*footprint.family(side.pid), psutil.Process(os.getpid())])
