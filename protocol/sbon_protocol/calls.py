"""Requests between nodes over TCP, each with the type of its reply.

``method_of(call)`` is the name that a :class:`~sbon_protocol.messages.Request` carries; a reply of ``None`` is an empty body.
Records of the planner or the engine (operator specifications, catalogue entries) travel as maps, and the receiver checks them
against their own types.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sbon_protocol import measuring, moving
from sbon_protocol.base import Call, Count, Line, Message, Milliseconds, Names, Quantity
from sbon_protocol.messages import Member
from sbon_protocol.papers import sand

Records = Annotated[tuple[Any, ...], Meta(max_length=4096)]


# -- membership -------------------------------------------------------------------------------------------------------


class Members(Message, frozen=True):
    """A part of the answering node's table, itself first; ``more`` if names after the last remain."""

    members: Annotated[tuple[Member, ...], Meta(max_length=16_384)]
    more: bool = False


class SyncMembers(Call, frozen=True):
    """Request by which a node joins: it sends its own Member, and asks for members with names after ``after``.

    With ``replace`` it takes its name over from another data directory, whose node is lost.
    """

    members: Annotated[tuple[Member, ...], Meta(max_length=16_384)]
    joining: bool = False
    after: Line = ""
    replace: bool = False


class CheckMember(Call, frozen=True):
    """Check whether the receiver is alive.

    ``member`` is the caller's belief about it; the reply is the receiver's own Member alone.
    """

    member: Member


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
    """Report to the query's leader that a component ``finished`` or ``failed`` in ``epoch``, and why.

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
    """Request all records that the receiver holds, and its components of queries whose records others hold.

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


# -- rows of queries, followed and posted -----------------------------------------------------------------------------


class FollowRows(Call, frozen=True):
    """Request rows of a query from its consumer, for a follower at the caller.

    ``follower`` names one following, ``after`` the frames that it has. ``take`` waits up to ``wait_s`` seconds for frames; with
    ``hold`` the follower only keeps its turn, with ``end`` it gives it up.
    """

    query: Line
    follower: Line
    after: Annotated[dict[Line, Count], Meta(max_length=4096)]
    purpose: Literal["take", "hold", "end"] = "take"
    wait_s: Quantity = 0.0


class FollowedFrame(Message, frozen=True):
    """A frame for a follower; fields as in :class:`~sbon_protocol.messages.Data`."""

    stream: Line
    number: Count
    watermark_ms: Milliseconds
    born_ms: Milliseconds
    payload: bytes


class FollowedRows(Message, frozen=True):
    """The next frames, in order; ``query`` is the query's identifier, and ``end`` its end once no frame is left."""

    query: Line
    frames: Annotated[tuple[FollowedFrame, ...], Meta(max_length=4096)] = ()
    end: Any = None


class AcknowledgeRows(Call, frozen=True):
    """Report that a follower has durably taken all frames up to these numbers, by stream."""

    query: Line
    numbers: Annotated[dict[Line, Count], Meta(max_length=4096)]


MAX_POST_HOPS = 2
"""Times that a post is passed on: to the node of its source, and to where that source has gone meanwhile."""


class PostRows(Call, frozen=True):
    """Pass on a post for a source of the receiver; ``hops`` counts how often it has been passed on, this time included."""

    stream: Line
    source: Line
    media_type: Line
    body: bytes
    key: Line = ""
    hops: Annotated[int, Meta(ge=1, le=MAX_POST_HOPS)] = 1


class RowsPosted(Message, frozen=True):
    """The receiver's answer to the post, once its rows are durable: a record ``Pushed`` as in docs/api.md."""

    answer: Any


# -- backups of operators and of replicated sources -------------------------------------------------------------------


class OpenBackup(Call, frozen=True):
    """Ask a node to keep a backup of the operator ``spec``, which the caller hosts in the epoch there.

    The reply comes once capacity for the operator is reserved. ``lineages`` are those of the streams that it reads.
    """

    spec: Any
    acceptors: Records
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
    frames: Records = ()
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
    frames: Records = ()
    more: bool = False


class YieldSource(Call, frozen=True):
    """Ask the backup to go on with a source: it has frames that the caller, its host in ``epoch``, has lost."""

    source: Line
    epoch: Count


# -- sinks whose readers begin amid a stream: those that another node takes over, and further ones --------------------


class TakeOverSink(Call, frozen=True):
    """Ask a node to go on with the ``sink`` of a node that is lost; answered once the sink's register names it as the host."""

    sink: Any
    acceptors: Records


class FenceReader(Call, frozen=True):
    """End the readers of ``stream`` that connect as ``subscriber`` below ``reader_epoch``, and ask how far they were."""

    stream: Line
    subscriber: Line
    reader_epoch: Count


class ReaderPosition(Message, frozen=True):
    """The last frame that the subscriber has ``acknowledged``; ``ended`` if that is the last of the stream."""

    acknowledged: Count
    ended: bool = False


class AddSink(Call, frozen=True):
    """Open a further sink of a query that runs, at the receiver."""

    sink: Any
    acceptors: Records


class SinkAdded(Message, frozen=True):
    """The beginning of a further sink: without the first ``rows`` of the result, 0 for none."""

    rows: Count


class BeginReader(Call, frozen=True):
    """Keep the frames of ``stream`` for a further sink from now on; ``begin`` with the first one, or after the newest."""

    stream: Line
    subscriber: Line
    reader_epoch: Count
    begin: Literal["earliest", "now"]


class ReaderBegun(Message, frozen=True):
    """The last frame that the reader does not get, the ``rows`` up to there, and whether the stream has ``ended`` with it."""

    frame: Count
    rows: Count
    ended: bool = False


class AddQuerySink(Call, frozen=True):
    """Add a further sink to a query at the receiver, which keeps its record; ``claim`` is random, and marks a repeated call."""

    query: Line
    request: Any
    claim: Line


class RemoveQuerySink(Call, frozen=True):
    """Remove a further sink from a query at the receiver, which keeps its record. ``sink`` is its id within the query."""

    query: Line
    sink: Line
    claim: Line = ""


class QuerySink(Message, frozen=True):
    """A further sink of a query, as the record has it."""

    sink: Any


# -- operators that queries share -------------------------------------------------------------------------------------


MAX_STREAMS = 256
"""Most streams in one question."""


class AskStreams(Call, frozen=True):
    """Ask a node what it knows of streams that it hosts: retained frames, readers, and the operators that make them."""

    streams: Annotated[tuple[Line, ...], Meta(max_length=MAX_STREAMS)]


class StreamOffers(Message, frozen=True):
    """An offer for each of the streams asked for that the answering node hosts."""

    offers: Annotated[tuple[Any, ...], Meta(max_length=MAX_STREAMS)]


class ShareOperator(Call, frozen=True):
    """Ask an operator's host to keep it for ``query``, which its register names by now, and its frames for ``readers``.

    Frames are kept from number ``first`` on, or with 0 from the next one on. The call is refused with ``not-retained`` if the
    first one is gone, and with ``operator-unknown`` if the operator's computation has another ``digest``: another node may have
    described it. ``acceptors`` keep the query's record. A repeated call changes nothing.
    """

    operator: Line
    digest: Line
    query: Line
    readers: Annotated[tuple[Line, ...], Meta(max_length=256)]
    first: Count
    acceptors: Annotated[tuple[Any, ...], Meta(max_length=16)]


class OperatorShared(Message, frozen=True):
    """The operator is kept. ``epoch`` is its present one, ``first`` the first frame that all readers get: 0 without readers."""

    epoch: Count
    first: Count


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
    "locate-component": (moving.LocateComponent, moving.ComponentHost),
    "report-state": (ReportState, None),
    "check-queries": (CheckQueries, QueriesChecked),
    "list-queries": (ListQueries, QueryRecords),
    "show-query": (ShowQuery, QueryDescription),
    "stop-query": (StopQuery, QueryDescription),
    "describe-components": (DescribeComponents, ComponentStates),
    "follow-rows": (FollowRows, FollowedRows),
    "acknowledge-rows": (AcknowledgeRows, None),
    "post-rows": (PostRows, RowsPosted),
    "keep-measurements": (measuring.KeepMeasurements, None),
    "recall-measurements": (measuring.RecallMeasurements, measuring.Measurements),
    "sample-sources": (measuring.SampleSources, measuring.SourceSamples),
    "measure-rtt": (measuring.MeasureRtt, measuring.MeasuredRtts),
    "reach-back": (measuring.ReachBack, measuring.ReachedBack),
    "examine-node": (measuring.ExamineNode, measuring.NodeExamined),
    "move-operator": (moving.MoveOperator, moving.OperatorMove),
    "cancel-move": (moving.CancelMove, moving.OperatorMove),
    "prepare-operator": (moving.PrepareOperator, None),
    "follow-operator": (moving.FollowOperator, moving.OperatorFollowed),
    "settle-operator": (moving.SettleOperator, None),
    "activate-operator": (moving.ActivateOperator, None),
    "abandon-operator": (moving.AbandonOperator, None),
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
    "weigh-joint-move": (moving.WeighJointMove, moving.JointSide),
    "move-jointly": (moving.MoveJointly, moving.OperatorMove),
    "add-subtree": (sand.AddSubtree, None),
    "operator-mapped": (sand.OperatorMapped, sand.PlacedOperators),
    "map-operator": (sand.MapOperator, sand.PlacedOperators),
    "invalidate-map": (sand.InvalidateMap, None),
    "operator-remapped": (sand.OperatorRemapped, sand.PlacedOperators),
}
"""Request and reply types by method name."""

_METHODS = {call: name for name, (call, _) in CALLS.items()}


def method_of(call: Call) -> str:
    return _METHODS[type(call)]
