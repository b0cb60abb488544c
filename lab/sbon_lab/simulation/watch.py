"""The checks at each step of a daemon; feeds :mod:`sbon_lab.simulation.checks` from outbox and links."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sbon_lab.simulation.checks import Checker
from sbon_lab.simulation.node import SimulatedNode
from sbon_node.base.failpoints import Failpoint
from sbon_node.connectors.sinks.runner import SinkRunner
from sbon_node.hosting.components import HostedSink
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.subscribers import is_follower


class Watch:
    """The observer of one run. Call :meth:`expect` for a query's components before they start."""

    def __init__(self, settings: StreamSettings) -> None:
        self._readers: dict[str, tuple[str, ...]] = {}
        self._inputs: dict[str, tuple[str, ...]] = {}
        self._runners: dict[str, SinkRunner] = {}
        self._batch_bytes = settings.inbox_credit_bytes
        self.checker = Checker(settings, self._readers)

    def expect(self, query: str, inputs: Mapping[str, Sequence[str]], outputs: Sequence[str]) -> None:
        """Expect the query's operators to read these streams, in the order of their inputs, and its sink to take
        ``outputs``.
        """
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
            self.checker.recovered(outbox, stream, _checkpoint(node, stream), node.name)
            self._shown(outbox, stream)

    def stepped(self, node: SimulatedNode, step: Failpoint) -> None:
        """Check after a step of a living node; does nothing before the node has opened its outbox."""
        outbox = node.outbox
        if outbox is None:
            return
        if step in ("publish", "plan", "store"):
            for stream in outbox.streams():
                if step == "store" and not self.checker.is_ahead(outbox, stream):
                    continue  # A backup goes on with all that it has stored, of which its host may have shown less.
                self.checker.published(outbox, stream, _checkpoint(node, stream), _publisher(node, stream))
                self._shown(outbox, stream)
        elif step == "outbox-write":
            for stream in outbox.streams():
                self.checker.bounded(outbox, stream, self._batch_bytes)
        elif step == "trim":
            for stream in outbox.streams():
                self.checker.trimmed(outbox, stream)
        if step in ("position-write", "store"):
            self._delivered(node)
        elif step in ("receive", "acknowledge"):
            self._resumed(node)
            for link in node.links():
                if step == "receive":
                    self.checker.received(link)
                elif self._readers and not is_follower(link.subscriber):
                    self.checker.acknowledged(link, link.subscriber)

    def stored(self, node: SimulatedNode) -> None:
        """Check the registers of a node, after a step of any node: a rule between registers sees all of them."""
        if node.ready:
            acceptors = node.daemon.ownership.acceptors
            self.checker.registers.stored(acceptors.me, acceptors.accepted())
            referenced = (digest for state in acceptors.states.values() for digest in state.references)
            self.checker.registers.complete(acceptors.me, acceptors.documents.missing(referenced))

    def engine_stepped(self, node: SimulatedNode, engine_process: str) -> None:
        """Check after a step of an engine process, whether its daemon lives or not."""
        self.checker.wrote(node.name, engine_process)

    def _shown(self, outbox: Outbox, stream: str) -> None:
        """Record that an operator has finished reading the input of its published frames."""
        inputs = self._inputs.get(stream, ())
        if inputs and (visible := outbox.visible_batch(stream)) >= 0:
            for position, (source, offset) in enumerate(zip(inputs, outbox.batch_offsets(stream, visible), strict=True)):
                self.checker.done(source, f"{stream}#{position}", offset.frame)

    def _resumed(self, node: SimulatedNode) -> None:
        """Record the stored position of a new sink as finished, even if the checker did not see it stored."""
        for sink, runner in node.created.hosting.sinks.open.runners.items() if node.created is not None else ():
            if self._runners.get(sink) is not runner:
                self._runners[sink] = runner
                for stream, frame in runner.positions().items():
                    self.checker.done(stream, sink, frame)

    def _delivered(self, node: SimulatedNode) -> None:
        """Record the frames up to a sink's stored position as finished."""
        if node.created is None:
            return
        for sink, runner in node.created.hosting.sinks.open.runners.items():
            for stream, frame in runner.positions().items():
                self.checker.done(stream, sink, frame)
        followed = node.created.hosting.sinks.open.followed
        for stored in node.created.context.store.all("sink", HostedSink).values() if followed else ():
            if (sink := stored.order.component) in followed:
                for stream, frame in stored.done.items():
                    self.checker.done(stream, sink, frame)


def _publisher(node: SimulatedNode, stream: str) -> str:
    """Return the process that publishes an operator's stream; a source keeps its epoch when its node restarts."""
    return node.name if is_source(stream) or node.process is None else node.process.name


def _checkpoint(node: SimulatedNode, stream: str) -> Path | None:
    folder = node.checkpoint(stream)
    return folder if not is_source(stream) and folder.exists() else None
