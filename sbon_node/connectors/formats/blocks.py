"""Common interface of the file formats: blocks of rows, bad rows, and positions between rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sbon_node.connectors.interface import BadRow, Origin

MAX_IGNORED, MAX_IGNORED_NAME = 20, 80


@dataclass(frozen=True, slots=True)
class Parsed:
    """Good rows of a text, its bad rows, and the origin of each good row."""

    rows: pa.RecordBatch
    bad: tuple[BadRow, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Block:
    """Rows, and bad rows, which belong to the first. Reading resumes at ``position(k)`` after ``k`` rows of the block."""

    rows: pa.RecordBatch
    bad: tuple[BadRow, ...]
    origin: Origin
    position: Callable[[int], bytes]


class BlockReader(Protocol):
    def check(self) -> None:
        """Raise :class:`SbonError` for a file that cannot be read as rows of the stream."""
        ...

    def open(self, position: bytes | None) -> None:
        """Go to ``position``. Raises :class:`SbonError` ``source-changed`` if the position belongs to another file."""
        ...

    @property
    def share(self) -> float | None:
        """Return the share before the next block, from 0 to 1; None if unknown."""
        ...

    def read(self) -> Block | None: ...

    def close(self) -> None: ...


class TextFormat(Protocol):
    """A text format whose records span a line or several lines."""

    def begin(self, head: bytes) -> int:
        """Read the file's first bytes; return how many of them precede the records. Raises :class:`SbonError`."""
        ...

    def split(self, text: bytes) -> int:
        """Return the bytes of ``text``, which begins with a record, up to the end of its last complete one; 0 without any."""
        ...

    def parse(self, text: bytes, line: int) -> Parsed:
        """Parse complete records, the first of which is in line ``line``."""
        ...

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return names in the input that are no columns, at most :data:`MAX_IGNORED`. Their values are not in the rows."""
        ...
