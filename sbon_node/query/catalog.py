"""What streams there are: names, schemas and where their rows are born (docs/design.md, section 6)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sbon_node.engine.interface import Schema

MAX_SOURCES_OF_A_STREAM = 256
MAX_ROWS_S = 1e9
MAX_ROW_BYTES = 2**20
ASSUMED_ROWS_S = 1000.0
ASSUMED_ROW_BYTES = 100.0
"""Of a source of which nothing is declared, sampled or measured."""

_SOURCE = "source/"


class StreamDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A logical stream: ``delay_ms`` is how far behind the greatest event time a row may still come."""

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
    schema: Schema
    event_time: str
    delay_ms: Annotated[int, Meta(ge=0, le=36_500 * 86_400_000)] = 0
    comment: str = ""


class SourceDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A physical source of a stream: a connector with its options, pinned to ``node``.

    ``version`` is that of the catalogue entry, which sets it, as it sets ``turn``: 1, more for a name that was detached before.
    ``id`` is the identity of the source's own stream of frames: ``source/<stream>@<version>/<name>``, with ``~<turn>`` from the
    second turn on, so that what is declared again never continues what was dropped.
    """

    stream: str
    name: str
    node: str
    connector: str
    options: dict[str, Any] = {}
    rows_s: Annotated[float, Meta(gt=0, le=MAX_ROWS_S)] | None = None
    row_bytes: Annotated[float, Meta(gt=0, le=MAX_ROW_BYTES)] | None = None
    version: int = 1
    turn: Annotated[int, Meta(ge=1, le=2**53)] = 1
    sampled: bool = False
    """Whether its node took one of the two from the source's beginning, for want of a declared one."""

    @property
    def id(self) -> str:
        again = f"~{self.turn}" if self.turn > 1 else ""
        return f"{_SOURCE}{self.stream}@{self.version}/{self.name}{again}"

    @property
    def expected_rows_s(self) -> float:
        return ASSUMED_ROWS_S if self.rows_s is None else self.rows_s

    @property
    def expected_row_bytes(self) -> float:
        return ASSUMED_ROW_BYTES if self.row_bytes is None else self.row_bytes


def called(source: SourceDeclaration) -> str:
    """For people: its stream, its own name where it has one beside its node's, and where it is."""
    own = f"/{source.name}" if source.name != source.node else ""
    return f"{source.stream}{own} at {source.node}"


def is_source(stream: str) -> bool:
    """Whether the frames are a source's; an operator's stream bears its id."""
    return stream.startswith(_SOURCE)


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A stream with its sources as of ``version``; a dropped stream stays as a tombstone, so that no peer revives it, from
    ``dropped_ms`` (since 1970, by the clock of who dropped it) on. ``detached`` holds by name the last turn of the sources that
    were detached, for the same reason."""

    declaration: StreamDeclaration
    sources: tuple[SourceDeclaration, ...] = ()
    version: int = 1
    origin: str = ""
    dropped: bool = False
    dropped_ms: int = 0
    detached: dict[str, int] = {}
