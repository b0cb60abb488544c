"""A running operator in its move to another host: it comes to rest at an offset, or stops amid its watermark's way."""

from __future__ import annotations

from typing import Protocol

from sbon_node.clock import Clock
from sbon_node.engine.alignment import Cut
from sbon_node.errors import SbonError
from sbon_node.model.operators import OperatorSpec

SETTLE_POLL_S = 0.03


class Movable(Protocol):
    """An operator that an engine runs."""

    @property
    def spec(self) -> OperatorSpec: ...

    def cut(self) -> Cut | None:
        """Return the position after the newest visible batch; None before the first. Raises ``OSError``, ``ValueError``."""
        ...

    def is_quiet(self) -> bool:
        """Return whether no batch is under way: all that is planned is committed and visible."""
        ...

    def hold(self, held: bool) -> None:
        """Let it plan no batch, or plan batches again."""
        ...


async def settled(operator: Movable, clock: Clock, frames: tuple[int, ...], within_s: float) -> Cut:
    """Wait until a batch that has read up to ``frames`` is visible, and no batch without further input would emit anything.

    Raises :class:`SbonError` ``not-settled`` after ``within_s`` seconds.
    """
    try:
        async with clock.timeout(within_s):
            while (cut := _resting(operator)) is None or cut.frames != frames or not cut.is_settled:
                await clock.sleep(SETTLE_POLL_S)
    except TimeoutError as error:
        reason = f"it has not come to rest at frames {frames} within {within_s:g} s"
        raise SbonError("not-settled", reason, where=operator.spec.id) from error
    return cut


async def held(operator: Movable, clock: Clock, within_s: float) -> Cut:
    """Let the operator plan no batch at all any more; return the position once the batch under way is visible.

    Raises as :func:`settled`, and holds it no longer then.
    """
    operator.hold(True)
    try:
        async with clock.timeout(within_s):
            while (cut := _resting(operator)) is None:
                await clock.sleep(SETTLE_POLL_S)
    except BaseException as error:
        operator.hold(False)
        if isinstance(error, TimeoutError):
            reason = f"it has not finished its batch within {within_s:g} s"
            raise SbonError("not-settled", reason, where=operator.spec.id) from error
        raise
    return cut


def _resting(operator: Movable) -> Cut | None:
    """Return the position of an operator without a batch under way."""
    try:
        return operator.cut() if operator.is_quiet() else None
    except (OSError, ValueError):  # Spark has deleted the batch meanwhile, so a later one is committed.
        return None
