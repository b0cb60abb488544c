"""Streams and their sources, as the HTTP API shows them."""

from typing import ClassVar

from sbon_protocol.api.bounded import Counted, EventTimeMs, PerSecond, Share, WallMs
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration
from sbon_protocol.api.durability import BackupInfo
from sbon_protocol.api.shown import Columns, Shown


class SourceInfo(Shown, frozen=True, kw_only=True):
    source: SourceDeclaration
    state: str
    """A state of :mod:`.states.source_states`, with its reason after a colon; or as another node derives it."""
    trouble: str = ""
    """Why its rows do not come; retried unless ``failed``. Empty if it only waits for its subscribers."""
    rows: Counted = 0
    bytes: Counted = 0
    late: Counted = 0
    bad: Counted = 0
    too_large: Counted = 0
    dropped: Counted = 0
    """Rows of a live source that subscribers lost because they fell behind the stored frames."""
    dead_letters: str = ""
    """The file, on the source's node, that keeps the bad rows with their line numbers."""
    rows_s: PerSecond | None = None
    """Recent rate, weighted towards the present: silence brings it to 0; None before the first measurement."""
    bytes_s: PerSecond | None = None
    paced: bool = False
    """Whether it has its own pace, instead of its subscribers' speed."""
    watermark_ms: EventTimeMs | None = None
    """No row that follows is earlier; None before the first row."""
    advanced_ms: WallMs | None = None
    """When the watermark last rose since the source started on its node, at first its start; by that node's clock."""
    finite: bool = False
    """Whether it ends by itself; for one that its node does not report, whether it may."""
    read_share: Share | None = None
    """Share of a finite source that has been read; None if unknown."""
    backup: BackupInfo | None = None
    """The backup of a replicated source, as its node knows it; its ``batch`` is the last frame."""


class StreamInfo(Shown, frozen=True, kw_only=True):
    entry: CatalogEntry

    COLUMNS: ClassVar[Columns] = {
        **{one: f"entry.declaration.{one}" for one in ("name", "event_time", "delay_ms", "schema", "comment")},
        "sources": "sources",
    }
    sources: tuple[SourceInfo, ...] = ()


def unknown_at(node: str) -> str:
    """Return why an operator, a sink or a source is lost."""
    return f"{node} does not know it, as after the loss of its data directory"


class RefusedRow(Shown, frozen=True, kw_only=True):
    """A refused row: its line in the body, from 1, and the reason."""

    line: int
    reason: str


MAX_REPORTED = 100
"""Refused rows that a reply to a post lists."""


class Pushed(Shown, frozen=True, kw_only=True):
    """Reply to a post whose rows are all durable.

    ``rows`` are in the stream, ``late`` rows were dropped, ``bad`` rows are in the source's dead-letter file, the first of them
    in ``refused``. ``repeated`` marks a post that was made before: its ``rows`` are the rows read then, late rows included.
    """

    source: str
    rows: int
    late: int = 0
    bad: int = 0
    refused: tuple[RefusedRow, ...] = ()
    ignored: tuple[str, ...] = ()
    """First names of columns or members outside the stream's schema; their values are dropped."""
    repeated: bool = False
