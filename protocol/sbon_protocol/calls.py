"""Requests between nodes over TCP, each with the type of its reply.

``method_of(call)`` is the name that a :class:`~sbon_protocol.messages.Request` carries; a reply of ``None`` is an empty body.
Records of the planner or the engine (operator specifications, catalogue entries) travel as maps, and the receiver checks them
against their own types.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sbon_protocol.backup import BackupOpened, BackupStored, DropBackup, OpenBackup, StoreBackup, YieldOperator
from sbon_protocol.failover import (
    AddQuerySink,
    AddSink,
    BeginReader,
    FenceReader,
    QuerySink,
    ReaderBegun,
    ReaderPosition,
    RemoveQuerySink,
    SinkAdded,
    TakeOverSink,
)
from sbon_protocol.following import AcknowledgeRows, FollowedRows, FollowRows
from sbon_protocol.joining import CheckMember, Members, SyncMembers
from sbon_protocol.measuring import (
    ExamineNode,
    KeepMeasurements,
    MeasuredRtts,
    Measurements,
    MeasureRtt,
    NodeExamined,
    ReachBack,
    ReachedBack,
    RecallMeasurements,
    SampleSources,
    SourceSamples,
)
from sbon_protocol.messages import Call, Count, Line, Message, Milliseconds, Names, Quantity
from sbon_protocol.moving import (
    AbandonOperator,
    ActivateOperator,
    CancelMove,
    ComponentHost,
    FollowOperator,
    JointSide,
    LocateComponent,
    MoveJointly,
    MoveOperator,
    OperatorFollowed,
    OperatorMove,
    PrepareOperator,
    SettleOperator,
    WeighJointMove,
)
from sbon_protocol.posting import PostRows, RowsPosted
from sbon_protocol.sharing import AskStreams, OperatorShared, ShareOperator, StreamOffers
from sbon_protocol.source_backup import OpenSourceBackup, SourceBackupOpened, StoreSource, YieldSource
from sbon_protocol.zones import AddSubtree, InvalidateMap, MapOperator, OperatorMapped, OperatorRemapped, PlacedOperators

Records = Annotated[tuple[Any, ...], Meta(max_length=4096)]


# -- catalogue --------------------------------------------------------------------------------------------------------


class PushCatalogue(Call, frozen=True):
    """Send entries that changed at the caller; the receiver merges each (see SPEC.md, catalogue)."""

    entries: Records


class PullCatalogue(Call, frozen=True):
    """Request entries whose fingerprint differs from the caller's, or that the caller lacks."""

    fingerprints: Annotated[dict[Line, Line], Meta(max_length=4096)]


class CatalogueEntries(Message, frozen=True):
    entries: Records


class AttachSource(Call, frozen=True):
    """Ask the node of a pinned source to check the source's options and attach it."""

    source: Any


class DescribeSources(Call, frozen=True):
    """Request the state of the receiver's sources of ``stream``."""

    stream: Line


class SourceStates(Message, frozen=True):
    sources: Records


# -- placement and deployment -----------------------------------------------------------------------------------------


class AskNode(Call, frozen=True):
    """Ask whether the receiver could host an operator with these needs; reserves nothing (SBON, section 3.1.3, step 2).

    The answer leaves out the operators of ``query``: their flows, and what they hold. With ``starts_engine`` a receiver that
    accepts answers once its engine runs.
    """

    cores: Quantity
    memory_mb: Quantity
    bandwidth_bytes_s: Quantity
    query: Line = ""
    starts_engine: bool = False


class NodeAnswer(Message, frozen=True):
    accepted: bool
    reason: Line
    operators: Names
    free_cores: Quantity
    free_memory_mb: Quantity
    free_bandwidth_bytes_s: Quantity
    load: Quantity
    server: Any = None


class ReserveOperator(Call, frozen=True):
    """Reserve capacity for an operator until it is instantiated or released, or ``hold_s`` seconds have passed."""

    query: Line
    operator: Line
    cores: Quantity
    memory_mb: Quantity
    bandwidth_bytes_s: Quantity
    hold_s: Quantity


class InstantiateOperator(Call, frozen=True):
    """Start a reserved operator; the reply comes once it runs. ``acceptors`` keep the query's record."""

    spec: Any
    acceptors: Records


class OpenSink(Call, frozen=True):
    """Open a query's sink at the receiver."""

    sink: Any
    acceptors: Records


class DestroyComponents(Call, frozen=True):
    """End a query's operators, reservations and sinks at the receiver, with their streams and checkpoints.

    For a rejected submission, also delete its sink's delivered rows. ``confirmed`` means that the caller has stored the final
    number of rows: the receiver may forget it.
    """

    query: Line
    components: Names
    refused: bool = False
    confirmed: bool = False


class ComponentsDestroyed(Message, frozen=True):
    """``rows`` is the final number of rows that the closed sink delivered, ``sink`` its state; None if no sink was closed.

    A repeated call gets them again, until they are ``confirmed``. Operators in ``kept`` go on for queries that share them.
    """

    rows: Count | None = None
    sink: Any = None
    kept: Names = ()


# -- registers --------------------------------------------------------------------------------------------------------


class AskRegister(Call, frozen=True):
    """Send a proposer's request for the register ``key`` to one of its acceptors (CASPaxos: Rystsov, arXiv 1802.07000).

    ``documents`` are those that a state to accept refers to, as far as the acceptor may not have them.
    """

    key: Line
    request: Any
    documents: Annotated[tuple[bytes, ...], Meta(max_length=3)] = ()


class RegisterAnswer(Message, frozen=True):
    answer: Any


class FetchDocuments(Call, frozen=True):
    """Request documents of registers by their SHA-256 digests, in hexadecimal."""

    digests: Annotated[tuple[Line, ...], Meta(max_length=3)]


class FetchedDocuments(Message, frozen=True):
    """The requested documents that the receiver has; the caller checks their digests."""

    documents: Annotated[tuple[bytes, ...], Meta(max_length=3)]


# -- records ----------------------------------------------------------------------------------------------------------


class ClaimComponent(Call, frozen=True):
    """Take the next epoch of an operator or sink for a restarted host, at any acceptor of the query's record.

    The reply is the new epoch; the same instance gets it again if it repeats the claim. Rejected with ``query-over`` if the query
    has been stopped, with ``not-owner`` if the component belongs to another node, instance, epoch or query, and with
    ``record-unknown`` if no node that answers has a record of the query or a register of the component, which proves nothing.
    """

    query: Line
    component: Line
    epoch: Count


class Claimed(Message, frozen=True):
    epoch: Count


class ReportState(Call, frozen=True):
    """Report to the query holder that a component ``finished`` or ``failed`` in ``epoch``, and why.

    Rejected as a ClaimComponent; an epoch of 0 matches any.
    """

    query: Line
    component: Line
    state: Literal["finished", "failed"]
    reason: Line = ""
    epoch: Count = 0


class CheckQueries(Call, frozen=True):
    """Ask an acceptor which of the queries, by uid, are over: a host of their components may have missed the end."""

    queries: Names


class QueriesChecked(Message, frozen=True):
    """Queries that are over, whose submission was ``refused``, and that are ``unknown``, which proves nothing."""

    over: Names = ()
    refused: Names = ()
    unknown: Names = ()


class ListQueries(Call, frozen=True):
    """Request all records that the receiver holds, and its components of queries with other holders.

    A ``query`` that is not empty restricts the reply to that query.
    """

    query: Line = ""


class QueryRecords(Message, frozen=True):
    queries: Records
    components: Records = ()


class ShowQuery(Call, frozen=True):
    query: Line
    history_after_ms: Milliseconds = -1
    """Time after which points of its usage history are requested."""


class StopQuery(Call, frozen=True):
    query: Line


class QueryDescription(Message, frozen=True):
    query: Any


class DescribeComponents(Call, frozen=True):
    """Request a host's state of a query: operators and sink, links of ``streams``, and latencies.

    The reply includes the state of those streams that are sources, and the one-way latency from the receiver to ``targets``.
    Operators come with the newest decisions about them only if ``decisions`` are asked for.
    """

    query: Line
    streams: Names
    targets: Names
    decisions: bool = False


class ComponentStates(Message, frozen=True):
    operators: Records
    links: Records
    latencies_ms: Annotated[dict[Line, Quantity], Meta(max_length=4096)]
    rows: Count | None
    sink: Any = None
    sources: Records = ()
    has_sink: bool | None = None
    sample: Any = None
    delay: Any = None
    further: Records = ()


CALLS: dict[str, tuple[type[Call], type[msgspec.Struct] | None]] = {
    "sync-members": (SyncMembers, Members),
    "check-member": (CheckMember, Members),
    "push-catalogue": (PushCatalogue, None),
    "pull-catalogue": (PullCatalogue, CatalogueEntries),
    "attach-source": (AttachSource, None),
    "describe-sources": (DescribeSources, SourceStates),
    "ask-node": (AskNode, NodeAnswer),
    "reserve-operator": (ReserveOperator, None),
    "instantiate-operator": (InstantiateOperator, None),
    "open-sink": (OpenSink, None),
    "destroy-components": (DestroyComponents, ComponentsDestroyed),
    "ask-register": (AskRegister, RegisterAnswer),
    "fetch-documents": (FetchDocuments, FetchedDocuments),
    "claim-component": (ClaimComponent, Claimed),
    "locate-component": (LocateComponent, ComponentHost),
    "report-state": (ReportState, None),
    "check-queries": (CheckQueries, QueriesChecked),
    "list-queries": (ListQueries, QueryRecords),
    "show-query": (ShowQuery, QueryDescription),
    "stop-query": (StopQuery, QueryDescription),
    "describe-components": (DescribeComponents, ComponentStates),
    "follow-rows": (FollowRows, FollowedRows),
    "acknowledge-rows": (AcknowledgeRows, None),
    "post-rows": (PostRows, RowsPosted),
    "keep-measurements": (KeepMeasurements, None),
    "recall-measurements": (RecallMeasurements, Measurements),
    "sample-sources": (SampleSources, SourceSamples),
    "measure-rtt": (MeasureRtt, MeasuredRtts),
    "reach-back": (ReachBack, ReachedBack),
    "examine-node": (ExamineNode, NodeExamined),
    "move-operator": (MoveOperator, OperatorMove),
    "cancel-move": (CancelMove, OperatorMove),
    "prepare-operator": (PrepareOperator, None),
    "follow-operator": (FollowOperator, OperatorFollowed),
    "settle-operator": (SettleOperator, None),
    "activate-operator": (ActivateOperator, None),
    "abandon-operator": (AbandonOperator, None),
    "open-backup": (OpenBackup, BackupOpened),
    "store-backup": (StoreBackup, BackupStored),
    "drop-backup": (DropBackup, None),
    "yield-operator": (YieldOperator, None),
    "open-source-backup": (OpenSourceBackup, SourceBackupOpened),
    "store-source": (StoreSource, None),
    "yield-source": (YieldSource, None),
    "take-over-sink": (TakeOverSink, None),
    "fence-reader": (FenceReader, ReaderPosition),
    "add-sink": (AddSink, SinkAdded),
    "begin-reader": (BeginReader, ReaderBegun),
    "add-query-sink": (AddQuerySink, QuerySink),
    "remove-query-sink": (RemoveQuerySink, QuerySink),
    "ask-streams": (AskStreams, StreamOffers),
    "share-operator": (ShareOperator, OperatorShared),
    "weigh-joint-move": (WeighJointMove, JointSide),
    "move-jointly": (MoveJointly, OperatorMove),
    "add-subtree": (AddSubtree, None),
    "operator-mapped": (OperatorMapped, PlacedOperators),
    "map-operator": (MapOperator, PlacedOperators),
    "invalidate-map": (InvalidateMap, None),
    "operator-remapped": (OperatorRemapped, PlacedOperators),
}
"""Request and reply types by method name."""

_METHODS = {call: name for name, (call, _) in CALLS.items()}


def method_of(call: Call) -> str:
    return _METHODS[type(call)]
