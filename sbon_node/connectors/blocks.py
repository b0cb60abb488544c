"""What the file formats have in common: a file is read in blocks, each of rows, bad rows and positions between the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sbon_node.connectors.interface import BadRow, Origin

MAX_IGNORED, MAX_IGNORED_NAME = 20, 80


@dataclass(frozen=True, slots=True)
class Parsed:
    """The good rows of some text, the bad ones, and where each good row came from."""

    rows: pa.RecordBatch
    bad: tuple[BadRow, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Block:
    """``position(k)`` is where reading goes on after ``k`` rows of the block; the bad rows belong to the first of them."""

    rows: pa.RecordBatch
    bad: tuple[BadRow, ...]
    origin: Origin
    position: Callable[[int], bytes]


class BlockReader(Protocol):
    def check(self) -> None:
        """Raises :class:`SbonError` for a file that cannot be read as rows of the stream."""
        ...

    def open(self, position: bytes | None) -> None:
        """Raises :class:`SbonError` ``source-changed`` where the file is not the one the position was taken in."""
        ...

    def read(self) -> Block | None: ...

    def close(self) -> None: ...


class TextFormat(Protocol):
    """A format of records in a text, each of one line or several."""

    def begin(self, head: bytes) -> int:
        """Looks at the file's first bytes; returns how many of them are no records. Raises :class:`SbonError`."""
        ...

    def split(self, text: bytes) -> int:
        """Bytes of ``text``, which begins with a record, up to the end of its last complete one; 0 where none is complete."""
        ...

    def parse(self, text: bytes, line: int) -> Parsed:
        """The rows of complete records of which the first is in that line."""
        ...

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names in what was read so far that are no columns, :data:`MAX_IGNORED` at most: nothing of theirs is in the rows."""
        ...
