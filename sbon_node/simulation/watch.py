"""What is checked at which step of a daemon: feeds the account of :mod:`sbon_node.simulation.checks` from outbox and links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sbon_node.control.sinks import HostedSink
from sbon_node.query.catalog import is_source
from sbon_node.simulation.checks import Checker
from sbon_node.simulation.node import SimulatedNode
from sbon_node.steps import Step
from sbon_node.streams.outbox import Outbox
from sbon_node.streams.settings import StreamSettings


class Watch:
    """Looks on at one run. What it is to expect of a query's parts has to be told before they start."""

    def __init__(self, settings: StreamSettings) -> None:
        self._readers: dict[str, tuple[str, ...]] = {}
        self._inputs: dict[str, tuple[str, ...]] = {}
        self._batch_bytes = settings.inbox_credit_bytes
        self.checker = Checker(settings, self._readers)

    def expect(self, query: str, inputs: Mapping[str, Sequence[str]], outputs: Sequence[str]) -> None:
        """The query's operators read these streams, each in the order of its inputs, and its sink takes ``outputs``."""
        for operator, streams in inputs.items():
            self._inputs[operator] = tuple(streams)
            for position, stream in enumerate(streams):
                self._reads(stream, f"{operator}#{position}")
        for stream in outputs:
            self._reads(stream, f"{query}.sink")

    def _reads(self, stream: str, reader: str) -> None:
        self._readers[stream] = (*self._readers.get(stream, ()), reader)

    def started(self, node: SimulatedNode) -> None:
        outbox = node.outbox
        assert outbox is not None
        for stream in outbox.streams():
            self.checker.recovered(outbox, stream, _checkpoint(node, stream))
            self._shown(outbox, stream)

    def stepped(self, node: SimulatedNode, step: Step) -> None:
        """After a step of a living node; there is nothing to see before it has opened its outbox."""
        outbox = node.outbox
        if outbox is None:
            return
        if step in ("publish", "plan"):
            for stream in outbox.streams():
                self.checker.published(outbox, stream, _checkpoint(node, stream))
                self._shown(outbox, stream)
        elif step == "outbox-write":
            for stream in outbox.streams():
                self.checker.bounded(outbox, stream, self._batch_bytes)
        elif step == "trim":
            for stream in outbox.streams():
                self.checker.trimmed(outbox, stream)
        elif step in ("position-write", "store"):
            self._delivered(node)
        elif step in ("receive", "acknowledge"):
            for link in node.links():
                if step == "receive":
                    self.checker.received(link)
                elif self._readers:
                    self.checker.acknowledged(link, link.subscriber)

    def host_stepped(self, node: SimulatedNode, host: str) -> None:
        """After a step of an engine host, its daemon alive or not."""
        self.checker.wrote(node.name, host)

    def _shown(self, outbox: Outbox, stream: str) -> None:
        """What an operator has shown, it has finished reading."""
        inputs = self._inputs.get(stream, ())
        if inputs and (visible := outbox.visible_batch(stream)) >= 0:
            for position, (source, offset) in enumerate(zip(inputs, outbox.batch_offsets(stream, visible), strict=True)):
                self.checker.done(source, f"{stream}#{position}", offset.frame)

    def _delivered(self, node: SimulatedNode) -> None:
        """What a sink has stored the position of, it has finished with."""
        if node.node is None:
            return
        for query, runner in node.node._sinks._runners.items():
            for stream, frame in runner._sink.positions().items():
                self.checker.done(stream, f"{query}.sink", frame)
        for query in node.node._sinks._followed:
            hosted = node.node.context.store.get("sink", query, HostedSink)
            for stream, frame in hosted.done.items() if hosted is not None else ():
                self.checker.done(stream, f"{query}.sink", frame)


def _checkpoint(node: SimulatedNode, stream: str) -> Path | None:
    folder = node.checkpoint(stream)
    return folder if not is_source(stream) and folder.exists() else None
