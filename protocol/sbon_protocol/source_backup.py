"""Requests by which the host of a replicated source keeps a backup of it at another node (see SPEC.md, backups of sources)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sbon_protocol.messages import Call, Count, Line, Message


class OpenSourceBackup(Call, frozen=True):
    """Ask a node to keep a backup of a source, by its id, which the caller hosts in ``epoch``.

    ``lineage`` is that of the source's stream.
    """

    source: Line
    epoch: Count
    lineage: Count


class SourceBackupOpened(Message, frozen=True):
    """``last``: the last frame of that lineage that the backup has stored for good."""

    last: Count = 0


class StoreSource(Call, frozen=True):
    """Store ``frames`` after number ``after`` of a source's stream, and the ``position`` of its connector after the last one.

    With ``more``, other frames follow, and nothing counts yet. Else all of it is stored once the reply is there. A node that has
    been asked in a later epoch refuses with ``fenced``.
    """

    source: Line
    epoch: Count
    stream: Any
    after: Count
    position: bytes
    frames: Annotated[tuple[Any, ...], Meta(max_length=4096)] = ()
    more: bool = False


class YieldSource(Call, frozen=True):
    """Ask the backup to go on with a source: it has frames that the caller, its host in ``epoch``, has lost."""

    source: Line
    epoch: Count
