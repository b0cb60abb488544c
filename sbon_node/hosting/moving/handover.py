"""The stream of a committed move on its way to the new host."""

from __future__ import annotations

from collections.abc import Callable

from sbon_node.hosting.moving.departure import Departure, of_target
from sbon_node.workflow.context import Context
from sbon_protocol.api.measures import MeasureSums
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import ActivateOperator

PIECE_BYTES, PIECE_FRAMES = 2**20, 1024
"""Most bytes and frames that one call hands over, but at least one frame. No settings, since the call is one frame of the wire,
whose size no node can change."""


async def send_stream(context: Context, departure: Departure, settle_s: float, sums: Callable[[str], MeasureSums | None]) -> None:
    """Send the stream in pieces; frames that all readers acknowledge meanwhile are left out of the next ones.

    After the last piece the target comes to rest again, which takes up to ``settle_s`` seconds if its engine has died meanwhile.
    Raises :class:`SbonError` that names the target. ``sums`` are the operator's measures, which go with the last piece.
    """
    spec, lease, outbox = departure.hosted.spec, departure.lease, context.outbox
    after, more = 0, True
    while more:
        stream = outbox.handover.export(spec.id, cut_off=True)
        after = max(after, stream.trimmed)
        frames = outbox.read(spec.id, after, PIECE_BYTES)[:PIECE_FRAMES]
        after = frames[-1].number if frames else stream.tail.last
        more = after < stream.tail.last
        measures = None if more else sums(spec.id)
        call = ActivateOperator(spec.id, lease.attempt, spec.epoch + 1, stream, tuple(frames), more, measures)
        try:
            await context.call(lease.target, call, timeout_s=context.settings.call_timeout_s + (0.0 if more else settle_s))
        except SbonError as error:
            raise of_target(lease.target, error) from error
