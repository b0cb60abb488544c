"""What a running operator does for its move to another host: it comes to rest at an offset, or stops amid its watermark's way."""

from __future__ import annotations

from sbon_node.clock import Clock
from sbon_node.engine.alignment import Cut
from sbon_node.engine.spark.running import SETTLE_POLL_S, Running
from sbon_node.errors import SbonError


async def settled(running: Running, clock: Clock, frames: tuple[int, ...], within_s: float) -> Cut:
    """Wait until a batch that has read up to ``frames`` is visible, and no batch without further input would emit anything.

    Raises :class:`SbonError` ``not-settled`` after ``within_s`` seconds.
    """
    try:
        async with clock.timeout(within_s):
            while (cut := _resting(running)) is None or cut.frames != frames or not cut.is_settled:
                await clock.sleep(SETTLE_POLL_S)
    except TimeoutError as error:
        reason = f"it has not come to rest at frames {frames} within {within_s:g} s"
        raise SbonError("not-settled", reason, where=running.spec.id) from error
    return cut


async def held(running: Running, clock: Clock, within_s: float) -> Cut:
    """Let Spark plan no batch at all any more; return the position once the batch under way is visible.

    Raises as :func:`settled`, and holds it no longer then.
    """
    running.hold(True)
    try:
        async with clock.timeout(within_s):
            while (cut := _resting(running)) is None:
                await clock.sleep(SETTLE_POLL_S)
    except BaseException as error:
        running.hold(False)
        if isinstance(error, TimeoutError):
            reason = f"it has not finished its batch within {within_s:g} s"
            raise SbonError("not-settled", reason, where=running.spec.id) from error
        raise
    return cut


def _resting(running: Running) -> Cut | None:
    """Return the position of an operator without a batch under way."""
    try:
        return running.cut() if running.is_quiet() else None
    except (OSError, ValueError):  # Spark has deleted the batch meanwhile, so a later one is committed.
        return None
