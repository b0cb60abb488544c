"""Delivery of coordinators' messages between the nodes of an experiment, encoded as on the wire, and counted."""

from collections import Counter
from collections.abc import Sequence

from sbon_node.net.peers import error_of, failure_of
from sbon_node.papers.sand.algorithm.coordinators import Coordinators
from sbon_node.placement.model.network_view import Answered, NetworkView, Sent
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.base import Call
from sbon_protocol.calls import CALLS, method_of
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError
from sbon_protocol.frames import LENGTH_BYTES, decode_frame, encode_frame
from sbon_protocol.messages import Failure, Frame, Request, Response
from sbon_protocol.papers.sand import PlacedOperators


class CoordinatorNetwork:
    """The coordinators of all nodes, with the knowledge of ``view``; ``counts`` are messages by kind, answers not included.

    ``size_bytes`` is the size of all frames, answers included. Messages of a node to itself are not counted. A node in ``away``
    does not answer.
    """

    def __init__(self, view: NetworkView, settings: PlacementSettings) -> None:
        self._view, self._settings = view, settings
        self._nodes: dict[str, Coordinators] = {}
        self.counts: Counter[str] = Counter()
        self.size_bytes = 0
        self.away: set[str] = set()

    def at(self, node: str) -> Coordinators:
        """Return the coordinators of a node."""
        if node not in self._nodes:

            async def send(other: str, message: Call, within_s: float) -> PlacedOperators | None:
                return await self._deliver(node, other, message)

            self._nodes[node] = Coordinators(node, self._settings, self._view, lambda: 0.0, send)
        return self._nodes[node]

    async def send_all(self, source: str, sent: Sequence[Sent]) -> list[Answered]:
        """Deliver messages of ``source`` one after another."""
        answers: list[Answered] = []
        for node, message in sent:
            try:
                answers.append(await self._deliver(source, node, message))
            except SbonError as error:
                answers.append(error)
        return answers

    async def _deliver(self, source: str, node: str, message: Call) -> PlacedOperators | None:
        """Return what the receiver answers to the decoded message; raises its :class:`SbonError`."""
        method = method_of(message)
        if source == node:
            return await self.at(node).serve(message, source)
        self.counts[type(message).__name__] += 1
        request = self._carried(Request(id=0, method=method, body=message))
        assert isinstance(request, Request)
        if node in self.away:
            raise SbonError("peer-unreachable", f"no answer to {method}", where=node)
        answer: Frame
        try:
            answer = Response(id=0, body=await self.at(node).serve(decode_record(request.body, CALLS[method][0]), source))
        except SbonError as error:
            answer = failure_of(0, error)
        except ProtocolError as error:
            answer = Failure(id=0, code="bad-request", message=str(error), where=method)
        answer = self._carried(answer)
        if isinstance(answer, Failure):
            raise error_of(answer)
        assert isinstance(answer, Response)
        return None if answer.body is None else decode_record(answer.body, PlacedOperators)

    def _carried(self, frame: Frame) -> Frame:
        """Return the frame as it arrives."""
        encoded = encode_frame(frame)
        self.size_bytes += len(encoded)
        return decode_frame(encoded[LENGTH_BYTES:])
