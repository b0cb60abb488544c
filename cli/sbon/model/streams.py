"""Streams and their sources."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from .durability import BackupInfo
from .shown import Columns, Shown


class Column(Shown, frozen=True):
    """One column; ``type`` is a Spark SQL type in lower case: ``bigint``, ``timestamp``, ``decimal(10,2)``."""

    name: str
    type: str


class StreamDeclaration(Shown, frozen=True, kw_only=True):
    name: str
    schema: tuple[Column, ...]
    event_time: str
    delay_ms: int = 0
    comment: str = ""
    sql: str = ""


class ViewDeclaration(Shown, frozen=True, kw_only=True):
    name: str
    sql: str
    comment: str = ""
    replace: bool = False


class SourceDeclaration(Shown, frozen=True, kw_only=True):
    stream: str
    name: str
    node: str
    connector: str
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    rows_s: float | None = None
    row_bytes: float | None = None
    version: int = 1
    turn: int = 1
    sampled: bool = False
    unpaced: bool = False
    durability: str = "local"
    epoch: int = 1

    @property
    def id(self) -> str:
        """The name of its stream of frames in plans and links."""
        again = f"~{self.turn}" if self.turn > 1 else ""
        return f"source/{self.stream}@{self.version}/{self.name}{again}"


class CatalogEntry(Shown, frozen=True, kw_only=True):
    declaration: StreamDeclaration
    sources: tuple[SourceDeclaration, ...] = ()
    version: int = 1
    origin: str = ""
    dropped: bool = False
    dropped_ms: int = 0
    detached: dict[str, int] = msgspec.field(default_factory=dict)


class SourceInfo(Shown, frozen=True, kw_only=True):
    source: SourceDeclaration
    state: str
    trouble: str = ""
    rows: int = 0
    bytes: int = 0
    late: int = 0
    bad: int = 0
    too_large: int = 0
    dropped: int = 0
    dead_letters: str = ""
    rows_s: float | None = None
    bytes_s: float | None = None
    paced: bool = False
    watermark_ms: int | None = None
    advanced_ms: int | None = None
    finite: bool = False
    read_share: float | None = None
    backup: BackupInfo | None = None


class StreamInfo(Shown, frozen=True, kw_only=True):
    COLUMNS: ClassVar[Columns] = {
        **{one: f"entry.declaration.{one}" for one in ("name", "event_time", "delay_ms", "schema", "comment")},
        "sources": "sources",
    }
    entry: CatalogEntry
    sources: tuple[SourceInfo, ...] = ()


class RefusedRow(Shown, frozen=True, kw_only=True):
    line: int
    reason: str


class Pushed(Shown, frozen=True, kw_only=True):
    """Result of a post whose rows are durable; ``rows`` excludes ``late`` and ``bad`` rows."""

    source: str
    rows: int
    late: int = 0
    bad: int = 0
    refused: tuple[RefusedRow, ...] = ()
    ignored: tuple[str, ...] = ()
    repeated: bool = False
