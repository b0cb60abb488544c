"""Rows that an operator skips because an expression of its query raised an error for them."""

from typing import Annotated, Protocol

import msgspec
from msgspec import Meta


class SkippedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row, as JSON, with the expression that raised an error for it and the engine's reason."""

    expression: str
    reason: str
    row: str


class SkippedRows(msgspec.Struct, frozen=True, kw_only=True):
    """The number of rows that a batch has skipped, and the first of them."""

    rows: Annotated[int, Meta(ge=1, le=2**62)]
    kept: tuple[SkippedRow, ...] = ()


class Letters(Protocol):
    """The store of an operator's skipped rows."""

    def write(self, batch: int, skipped: SkippedRows) -> None:
        """Store a batch's skipped rows before its output is stored. A batch written again replaces itself.

        Raises :class:`SbonError` ``disk-full``, ``disk-error``.
        """
        ...
