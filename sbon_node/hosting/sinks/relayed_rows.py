"""Rows of this node's queries for followers at other nodes, which relay them (:mod:`sbon_node.queries.sinks.follow`)."""

from __future__ import annotations

from sbon_node.connectors.sinks.follow import Follower
from sbon_node.context import Context
from sbon_node.hosting.sinks.host import SinkHost
from sbon_node.net.peers import Caller
from sbon_protocol.calls import AcknowledgeRows, FollowedFrame, FollowedRows, FollowRows


class RelayedRows:
    """Answers calls of followers at other nodes.

    A follower has its turn while it calls. The turn ends with the connection of a call that waits for rows, and otherwise after
    ``control.call_timeout_s`` of silence.
    """

    def __init__(self, context: Context, sinks: SinkHost) -> None:
        self._settings, self._sinks = context.settings, sinks
        context.server.handle(FollowRows, self._handle_follow)
        context.server.handle(AcknowledgeRows, self._handle_acknowledge)

    async def _handle_follow(self, call: FollowRows, caller: Caller) -> FollowedRows:
        sink, settings = self._sinks.followed(call.query), self._settings
        turn_s = settings.call_timeout_s
        follower = Follower("", call.follower, caller.node, caller.instance)
        if call.purpose == "end":
            sink.end_turn(follower)
            return FollowedRows(query=sink.query)
        if call.purpose == "hold":
            sink.hold(follower, turn_s)
            return FollowedRows(query=sink.query)
        wait_s = min(call.wait_s, settings.follow_wait_s)
        taken = await sink.take(follower, call.after, wait_s=wait_s, turn_s=turn_s, max_bytes=settings.follow_bytes)
        if taken.end is not None:
            self._sinks.check_open()  # the sink also ends with its node, and the query does not
        frames = tuple(
            FollowedFrame(
                stream=frame.stream,
                number=frame.number,
                watermark_ms=frame.watermark_ms,
                born_ms=frame.born_ms,
                payload=frame.payload,
            )
            for frame in taken.frames
        )
        return FollowedRows(query=sink.query, frames=frames, end=taken.end)

    async def _handle_acknowledge(self, call: AcknowledgeRows, caller: Caller) -> None:
        relay = (caller.node, caller.instance)
        await self._sinks.acknowledge(call.query, call.numbers, lambda one: (one.node, one.instance) == relay)
