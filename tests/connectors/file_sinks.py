"""Sinks to a file, opened, killed and run again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from sbon_lab.simulation.loop import run
from sbon_node.base.clock import Clock
from sbon_node.base.executors import Executor, inline
from sbon_node.base.failpoints import unobserved
from sbon_node.connectors.interface import Sink
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.registry import open_sink, withdraw_sink
from sbon_node.connectors.sinks.runner import SinkRunner
from sbon_node.streams.outbox.signals import Signal
from tests.connectors.sent_streams import ARROW, SENT, FakeLink

FORMATS = ["out.csv", "out.ndjson", "out.parquet"]


def context(claim: str = "mine", *, fresh: bool = True, executor: Executor = inline, failpoint: Any = unobserved) -> SinkContext:
    return SinkContext(
        component="q.sink",
        claim=claim,
        fresh=fresh,
        schema=ARROW,
        data_dir=Path("/nowhere"),
        executor=executor,
        failpoint=failpoint,
    )


def opened(options: dict[str, Any], claim: str = "mine", *, fresh: bool = True) -> Sink:
    return asyncio.run(open_sink("file", options, context(claim, fresh=fresh)))


def withdrawn(options: dict[str, Any], claim: str = "mine", *, delivered: bool) -> None:
    asyncio.run(withdraw_sink("file", options, context(claim, fresh=False), delivered=delivered))


class World:
    def __init__(self, path: Path, pause_s: float = 0.02, **options: Any) -> None:
        self.path, self.pause_s, self.options = path, pause_s, {"path": str(path), **options}
        self.acknowledged: dict[str, int] = {}
        self.fresh = True
        self.failpoint: Callable[[str], None] = lambda step: None

    def run(self) -> SinkRunner:
        async def main() -> SinkRunner:
            failpoint = lambda step: self.failpoint(step)  # noqa: E731
            sink = await open_sink("file", self.options, context(fresh=self.fresh, failpoint=failpoint))
            self.fresh = False
            done = sink.positions()
            news = Signal()
            links: list[Any] = [FakeLink(s, self.acknowledged, self.pause_s, done.get(n, 0), news) for n, s in SENT.items()]
            runner = SinkRunner("q", sink, links, news, Clock())
            try:
                await runner.run()
            finally:
                await runner.close()
            return runner

        return run(lambda loop, rng: main(), seed=1)

    def rows(self) -> list[tuple[Any, ...]]:
        what = {".csv": f"read_csv('{self.path}')", ".ndjson": f"read_json('{self.path}')"}.get(
            self.path.suffix, f"read_parquet('{self.path}/*.parquet')"
        )
        return sorted(duckdb.sql(f"SELECT stream, n, x FROM {what}").fetchall())
