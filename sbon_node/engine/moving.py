"""A running operator in its move to another host: it plans no batch any more, and comes to rest."""

from typing import Protocol

from sbon_node.base.clock import Clock
from sbon_node.engine.alignment import Cut
from sbon_node.engine.checkpoint import BatchLog
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.errors import SbonError

SETTLE_POLL_S = 0.03


class Movable(Protocol):
    """An operator that an engine runs."""

    @property
    def spec(self) -> OperatorSpec: ...

    @property
    def asks(self) -> bool:
        """Whether its engine waits for the inputs of the next batch, which :meth:`hold` keeps from it."""

    def cut(self) -> Cut | None:
        """Return the position after the newest visible batch; None before the first. Raises ``OSError``, ``ValueError``."""

    def is_quiet(self) -> bool:
        """Return whether no batch is under way: all that is planned is committed and visible."""


async def resting(operator: Movable, clock: Clock, within_s: float) -> Cut:
    """Wait until the last batch of a held operator is visible; return the position after it.

    Raises :class:`SbonError` ``not-settled`` after ``within_s`` seconds.
    """
    try:
        async with clock.timeout(within_s):
            while (cut := _position(operator)) is None:
                await clock.sleep(SETTLE_POLL_S)
    except TimeoutError as error:
        reason = f"it has not finished its batch within {within_s:g} s"
        raise SbonError("not-settled", reason, where=operator.spec.id) from error
    return cut


def frames_planned(log: BatchLog, visible: int) -> list[tuple[int, ...]]:
    """Return the last frames of each batch of a checkpoint from that before the ``visible`` one on."""
    try:
        return [tuple(offset.frame for offset in log.read_offsets(batch)) for batch in log.offsets() if batch >= visible - 1]
    except (OSError, ValueError):  # Spark writes or deletes a file meanwhile; a batch that is missing keeps a move from its end.
        return []


def _position(operator: Movable) -> Cut | None:
    """Return the position of an operator without a batch under way."""
    try:
        return operator.cut() if operator.asks and operator.is_quiet() else None
    except (OSError, ValueError):  # Spark has deleted the batch meanwhile, so a later one is committed.
        return None
