"""Frames of two streams, links that carry them, and a sink that is run over and over, for tests of sinks of any kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sbon_node.base.clock import Clock
from sbon_node.base.executors import in_thread
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition
from sbon_node.connectors.sinks.registry import open_sink, withdraw_sink
from sbon_node.connectors.sinks.runner import SinkRunner
from sbon_node.model.frames import Frame
from sbon_node.streams.outbox.signals import Signal
from tests.connectors.sent_streams import ARROW, SENT, FakeLink

QUICK = ConnectorSettings(retry_s=0.1, retry_max_s=0.2, endpoints=("*", "127.0.0.0/8"))


class Sinking:
    """One sink of a query; ``sent`` are its frames by stream."""

    def __init__(
        self,
        folder: Path,
        kind: str,
        options: dict[str, Any],
        *,
        sent: dict[str, list[Frame]] | None = None,
        schema: Any = ARROW,
        settings: ConnectorSettings = QUICK,
        pause_s: float = 0.0,
        claim: str = "c1a1",
        epoch: int = 1,
    ) -> None:
        self.folder, self.kind, self.options, self.settings, self.claim = folder, kind, options, settings, claim
        self.sent, self.schema, self.pause_s = SENT if sent is None else sent, schema, pause_s
        self.acknowledged: dict[str, int] = {}
        self.epoch = epoch
        self.taken_up: DeliveryPosition | None = None
        self.failpoint: Callable[[str], None] = lambda step: None
        self.fresh = True

    def context(self, *, fresh: bool) -> SinkContext:
        return SinkContext(
            component="q.sink",
            claim=self.claim,
            fresh=fresh,
            schema=self.schema,
            data_dir=self.folder,
            executor=in_thread,
            settings=self.settings,
            clock=Clock(),
            failpoint=lambda step: self.failpoint(step),
            epoch=self.epoch,
            acknowledged=self.taken_up,
        )

    async def open(self) -> SinkRunner:
        sink = await open_sink(self.kind, self.options, self.context(fresh=self.fresh))
        self.fresh = False
        done = sink.positions()
        news = Signal()
        links: list[Any] = [FakeLink(s, self.acknowledged, self.pause_s, done.get(n, 0), news) for n, s in self.sent.items()]
        self.runner = SinkRunner("q", sink, links, news, Clock(), self.settings)
        return self.runner

    async def run(self) -> SinkRunner:
        """To the end of all streams, or to whatever ends it otherwise."""
        runner = await self.open()
        try:
            await runner.run()
        finally:
            await runner.close()
        return runner

    async def withdraw(self, *, delivered: bool) -> None:
        await withdraw_sink(self.kind, self.options, self.context(fresh=False), delivered=delivered)
