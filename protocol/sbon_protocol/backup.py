"""Requests by which an operator's host keeps a backup of it at another node (see SPEC.md, backups)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from sbon_protocol.messages import Call, Count, Line, Message


class OpenBackup(Call, frozen=True):
    """Ask a node to keep a backup of the operator ``spec``, which the caller hosts in the epoch there.

    The reply comes once capacity for the operator is reserved. ``lineages`` are those of the streams that it reads.
    """

    spec: Any
    acceptors: Annotated[tuple[Any, ...], Meta(max_length=4096)]
    lineages: Annotated[dict[Line, Count], Meta(max_length=4096)]
    stream_lineage: Count = 0


class BackupOpened(Message, frozen=True):
    """State of a backup at its node: the newest ``batch`` (nil for none), and ``last``, the last frame of its stream."""

    batch: Count | None = None
    last: Count = 0


class StoreBackup(Call, frozen=True):
    """Store what the operator shows with ``batch``: ``frames`` after number ``after``, and the files of its checkpoint.

    With ``more``, other frames follow, and nothing counts yet. The last call lists the ``files`` of the checkpoint, with the
    ``contents`` of new ones; if the caller has ``offered`` a copy under that attempt, the others are fetched from it.
    The batch began ``before`` these frames of its inputs; empty for unknown. It is stored once the reply is there. A node that
    has been asked in a later epoch refuses with ``fenced``.
    """

    operator: Line
    epoch: Count
    batch: Count
    cut: Any
    stream: Any
    after: Count
    frames: Annotated[tuple[Any, ...], Meta(max_length=4096)] = ()
    files: Annotated[tuple[Any, ...], Meta(max_length=65_536)] = ()
    contents: Annotated[tuple[bytes, ...], Meta(max_length=4096)] = ()
    offered: Line = ""
    more: bool = False
    measures: Any = None
    before: Annotated[tuple[Count, ...], Meta(max_length=4096)] = ()


class BackupStored(Message, frozen=True):
    """The batch is stored. Of a hot operator, tell whether a follower ``follows`` there, and why not.

    While one starts, it ``needs`` the input after this batch: the caller keeps that at its hosts.
    """

    needs: bool = False
    follows: bool = False
    reason: Line = ""


class DropBackup(Call, frozen=True):
    """Tell a node that its backup of an operator of ``query`` is not needed any more; sent by the operator's host."""

    query: Line
    operator: Line


class YieldOperator(Call, frozen=True):
    """Ask the backup to go on with an operator, which the engine of the caller, its host in ``epoch``, cannot run."""

    operator: Line
    epoch: Count
