"""The dead letters of an operator: rows that its query skips because an expression failed, once each.

A small file beside the dead letters holds the counts of bytes and rows before each of the newest batches. It is written before
the dead letters, and both before the batch's output. A repeated batch first removes the dead letters of its earlier run.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import structlog

from sbon_node.base.disk import named_errors, replace
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.dead_letters import DeadLetters, trim
from sbon_node.streams.skipped import SkippedRow, SkippedRows
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

MOST_BATCHES = 16
"""More batches than Spark ever repeats."""


def trim_letters(folder: Path, settings: ConnectorSettings) -> None:
    """Keep the dead letters of a node within ``connectors.dead_letters_max_bytes``."""
    try:
        gone = trim(folder, settings.dead_letters_max_bytes)
    except OSError as error:
        log.warning("dead-letters-not-trimmed", folder=str(folder), reason=str(error))
        return
    if gone:
        log.info("dead-letters-deleted", files=len(gone), first=gone[0].name, hint="raise connectors.dead_letters_max_bytes")


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The counts before ``batch``."""

    batch: int
    length: int
    rows: int


class At(msgspec.Struct, frozen=True, kw_only=True):
    """The current counts, and the counts before the newest batches, oldest first."""

    length: int = 0
    rows: int = 0
    before: tuple[Before, ...] = ()


class OperatorLetters:
    """Dead letters of one operator.

    ``rows`` counts all rows skipped in its life, even those that do not fit the file.
    """

    def __init__(self, folder: Path, operator: str, settings: ConnectorSettings) -> None:
        self._settings = settings
        self._letters = DeadLetters(
            folder, operator, max_bytes=settings.dead_letter_max_bytes, max_text=settings.dead_letter_text_bytes
        )
        self._file = self._letters.path.with_suffix(".at")
        self._at = self._read()

    @property
    def rows(self) -> int:
        return self._at.rows

    @property
    def path(self) -> str:
        """Return the path of the file; empty before the first row."""
        return str(self._letters.path) if self._at.rows else ""

    def write(self, batch: int, skipped: SkippedRows) -> None:
        at = self._at
        again = next((earlier for earlier in at.before if earlier.batch >= batch), None)
        length, rows = (again.length, again.rows) if again is not None else (at.length, at.rows)
        kept = tuple(earlier for earlier in at.before if earlier.batch < batch)[-MOST_BATCHES + 1 :]
        before = (*kept, Before(batch=batch, length=length, rows=rows))
        # If the node dies here, the batch runs again and begins at these counts.
        self._store(At(length=length, rows=rows, before=before))
        self._letters.open(length)
        self._letters.write_lines([self._line(row) for row in skipped.kept])
        self._store(At(length=self._letters.length, rows=rows + skipped.rows, before=before))

    def close(self) -> None:
        """End the dead letters of an operator.

        The file stays for users while there is room; a later operator of that name starts a new file.
        """
        self._file.unlink(missing_ok=True)
        trim_letters(self._file.parent, self._settings)

    def _line(self, row: SkippedRow) -> dict[str, str]:
        most = self._settings.dead_letter_text_bytes
        return {"expression": row.expression, "reason": row.reason, "row": row.row[:most]}

    def _read(self) -> At:
        with named_errors(self._file):
            if not self._file.exists():
                return At()
            try:
                return msgspec.json.decode(self._file.read_bytes(), type=At)
            except msgspec.MsgspecError as error:
                raise SbonError("store-unreadable", f"it is damaged: {error}", where=str(self._file), hint="remove it") from error

    def _store(self, at: At) -> None:
        with named_errors(self._file):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace(self._file, msgspec.json.encode(at))
        self._at = at
