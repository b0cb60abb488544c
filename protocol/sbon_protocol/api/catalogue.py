"""Streams and their sources: names, schemas and source nodes (docs/design.md, section 6)."""

import re
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from sbon_protocol.api.columns import Schema
from sbon_protocol.api.durability import LOCAL, SourceDurability
from sbon_protocol.api.shown import Shown
from sbon_protocol.codec import MAX_ROW_BYTES

MAX_SOURCES_OF_A_STREAM = 256
MAX_ROWS_S = 1e9
MAX_EPOCH = 2**53
ASSUMED_ROWS_S = 1000.0
ASSUMED_ROW_BYTES = 100.0
"""Assumed row size of a source whose row size is neither declared, sampled nor measured."""

_SOURCE = "source/"
_ID = re.compile(r"source/([a-z0-9_]{1,63})@(\d{1,16})/([^/~]*)(?:~(\d{1,16}))?")

MAX_VIEW_CHARACTERS = 65_536


class StreamDeclaration(Shown, frozen=True, kw_only=True):
    """A logical stream, or a view: a name for ``sql``, which is read in its place when a query is planned.

    ``delay_ms`` is the most by which a row may be older than the greatest event time so far. A view has no sources. Its
    ``schema`` is that of the query when it was created, and ``event_time`` is empty where no column follows the watermark.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
    schema: Schema
    event_time: str
    delay_ms: Annotated[int, Meta(ge=0, le=36_500 * 86_400_000)] = 0
    comment: str = ""
    sql: Annotated[str, Meta(max_length=MAX_VIEW_CHARACTERS)] = ""


class ViewDeclaration(Shown, frozen=True, kw_only=True):
    """A view as a user creates it; with ``replace``, in place of a view of that name, if there is one."""

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
    sql: Annotated[str, Meta(min_length=1, max_length=MAX_VIEW_CHARACTERS)]
    comment: str = ""
    replace: bool = False


class SourceDeclaration(Shown, frozen=True, kw_only=True):
    """A physical source of a stream: a connector with its options, pinned to ``node``.

    The catalogue entry sets ``version``, its own version, and ``turn``: 1, or more for a name that was detached before. ``id`` is
    the identity of the source's own stream of frames: ``source/<stream>@<version>/<name>``, with ``~<turn>`` from the second turn
    on, so that a new declaration never continues a dropped stream.
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
    """Whether the node sampled rate or row size at the source's beginning, because it was not declared."""
    unpaced: bool = False
    """Whether the sample is of many finite rows without a pace: its readers take them as fast as they can."""
    durability: SourceDurability = LOCAL
    """``replicated``: its rows are at a backup before they are confirmed; that goes on with it if ``node`` is lost."""
    epoch: Annotated[int, Meta(ge=1, le=MAX_EPOCH)] = 1
    """The epoch in which the backup of a replicated source became its ``node``."""

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
    """Return a name for users: the stream, the source's own name if it differs from its node's, and the node."""
    own = f"/{source.name}" if source.name != source.node else ""
    return f"{source.stream}{own} at {source.node}"


def is_source(stream: str) -> bool:
    """Return whether a source produces the frames; an operator's stream has the operator's id."""
    return stream.startswith(_SOURCE)


class SourceParts(NamedTuple):
    """The parts of a source's id."""

    stream: str
    version: int
    name: str
    turn: int


def parts_of(source_id: str) -> SourceParts:
    """Return the parts of the id of a source; an id that is none has empty parts."""
    parts = _ID.fullmatch(source_id)
    if parts is None:
        return SourceParts("", 0, "", 0)
    stream, version, name, turn = parts.groups()
    return SourceParts(stream, int(version), name, int(turn or 1))


class CatalogEntry(Shown, frozen=True, kw_only=True):
    """A stream with its sources as of ``version``.

    A dropped stream stays as a tombstone, so that no peer revives it; ``dropped_ms`` is the time of the drop (since 1970, by the
    dropping node's clock). ``detached`` holds the last turn of each detached source by name, for the same reason.
    """

    declaration: StreamDeclaration
    sources: tuple[SourceDeclaration, ...] = ()
    version: int = 1
    origin: str = ""
    dropped: bool = False
    dropped_ms: int = 0
    detached: dict[str, int] = {}
