"""The requests nodes make of each other over TCP, each with the reply it is answered by.

``method_of(call)`` is the name a :class:`~sbon_protocol.messages.Request` carries; a reply of ``None`` is an empty body.
Records whose form belongs to the planner or the engine (operator specifications, catalogue entries) travel as maps and are
checked against their own types by whoever receives them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sbon_protocol.messages import Count, Endpoint, Line, Member, Message, Name, Quantity

Records = Annotated[tuple[Any, ...], Meta(max_length=4096)]
Names = Annotated[tuple[Line, ...], Meta(max_length=4096)]
MAX_MEASUREMENTS = 4096
MAX_TARGETS = 256


class Call(Message, frozen=True):
    """A request. Subclasses are named in ``CALLS`` with the type of their reply."""


class Members(Message, frozen=True):
    """A part of the answerer's table, itself first; ``more`` where names after the last one remain."""

    members: Annotated[tuple[Member, ...], Meta(max_length=16_384)]
    more: bool = False


class SyncMembers(Call, frozen=True):
    """How a node joins: tells of itself, and asks for the members whose names come after ``after``."""

    members: Annotated[tuple[Member, ...], Meta(max_length=16_384)]
    joining: bool = False
    after: Line = ""


class CheckMember(Call, frozen=True):
    """Are you there? ``member`` is what the caller believes of the receiver, who answers with its own Member alone."""

    member: Member


# -- catalogue --------------------------------------------------------------------------------------------------------


class PushCatalogue(Call, frozen=True):
    """Entries that changed at the caller; the receiver merges each (see SPEC.md, catalogue)."""

    entries: Records


class PullCatalogue(Call, frozen=True):
    """Asks for the entries whose fingerprint differs from the caller's, or that the caller has not."""

    fingerprints: Annotated[dict[Line, Line], Meta(max_length=4096)]


class CatalogueEntries(Message, frozen=True):
    entries: Records


class AttachSource(Call, frozen=True):
    """Asks the node a source is pinned to, to check its options and attach it."""

    source: Any


class DescribeSources(Call, frozen=True):
    """Asks for the state of the sources of ``stream`` that live on the receiver."""

    stream: Line


class SourceStates(Message, frozen=True):
    sources: Records


# -- placement and deployment -----------------------------------------------------------------------------------------


class AskNode(Call, frozen=True):
    """Could the receiver host an operator of these needs now? Nothing is reserved (SBON, section 3.1.3, step 2)."""

    cores: Quantity
    memory_mb: Quantity
    bandwidth_bytes_s: Quantity


class NodeAnswer(Message, frozen=True):
    accepted: bool
    reason: Line
    operators: Names
    free_cores: Quantity
    free_memory_mb: Quantity
    free_bandwidth_bytes_s: Quantity
    load: Quantity


class ReserveOperator(Call, frozen=True):
    """Holds room for an operator until it is instantiated, released, or ``hold_s`` seconds have passed."""

    query: Line
    operator: Line
    cores: Quantity
    memory_mb: Quantity
    bandwidth_bytes_s: Quantity
    hold_s: Quantity


class InstantiateOperator(Call, frozen=True):
    """Starts a reserved operator; answered once it runs. ``holder`` is the node that keeps the query's record."""

    spec: Any
    holder: Name


class OpenSink(Call, frozen=True):
    """Opens a query's sink at the receiver."""

    sink: Any
    holder: Name


class DestroyParts(Call, frozen=True):
    """Ends operators, reservations and sinks of a query at the receiver, with their streams and checkpoints; of a submission that
    was refused also what its sink has delivered."""

    query: Line
    parts: Names
    refused: bool = False


class PartsDestroyed(Message, frozen=True):
    """``rows`` are what the query's sink had delivered for good when it was closed, ``sink`` how it stood; None where none was
    closed."""

    rows: Count | None = None
    sink: Any = None


# -- records ----------------------------------------------------------------------------------------------------------


class ClaimPart(Call, frozen=True):
    """A host that restarted takes the next epoch of an operator or sink for itself, at the holder of the query's record.

    Answered with the new epoch; refused with ``query-over`` where the query has been stopped, and ``not-owner`` where the part
    belongs to another node or a greater epoch by now.
    """

    query: Line
    part: Line
    epoch: Count


class Claimed(Message, frozen=True):
    epoch: Count


class ReportState(Call, frozen=True):
    """A host tells the record's holder that a part of a query ``finished`` or ``failed``, and why."""

    query: Line
    part: Line
    state: Literal["finished", "failed"]
    reason: Line = ""


class ListQueries(Call, frozen=True):
    """Asks for all records the receiver holds, and for the parts it hosts of queries whose records others hold; for those of
    ``query`` alone, where it is not empty."""

    query: Line = ""


class QueryRecords(Message, frozen=True):
    queries: Records
    parts: Records = ()


class ShowQuery(Call, frozen=True):
    query: Line


class StopQuery(Call, frozen=True):
    query: Line


class QueryDescription(Message, frozen=True):
    query: Any


class DescribeParts(Call, frozen=True):
    """Asks a host for what it knows of a query: its operators and sink, the links that leave ``streams`` and how those of
    them that are sources stand, and the one-way latency from the receiver to ``targets``."""

    query: Line
    streams: Names
    targets: Names


class PartStates(Message, frozen=True):
    operators: Records
    links: Records
    latencies_ms: Annotated[dict[Line, Quantity], Meta(max_length=4096)]
    rows: Count | None
    sink: Any = None
    sources: Records = ()


# -- measurements -----------------------------------------------------------------------------------------------------


class OperatorMeasurement(Message, frozen=True):
    """What an operator has done, by the canonical ``signature`` of its sub-plan; ``bytes_out`` are of payload."""

    signature: Line
    rows_in: Count
    rows_out: Count
    bytes_out: Count
    age_s: Quantity


class SourceMeasurement(Message, frozen=True):
    """How fast a source goes, 0 where it has no pace of its own, and the bytes of payload of one row."""

    source: Line
    rows_s: Quantity
    row_bytes: Quantity


class KeepMeasurements(Call, frozen=True):
    """The holder of a query's record tells a node of its sources what was measured, for plans to come."""

    operators: Annotated[tuple[OperatorMeasurement, ...], Meta(max_length=MAX_MEASUREMENTS)]


class RecallMeasurements(Call, frozen=True):
    """Asks for what the receiver remembers of ``signatures``, and has measured of those ``sources`` that live on it."""

    sources: Names
    signatures: Names


class Measurements(Message, frozen=True):
    sources: Annotated[tuple[SourceMeasurement, ...], Meta(max_length=MAX_MEASUREMENTS)]
    operators: Annotated[tuple[OperatorMeasurement, ...], Meta(max_length=MAX_MEASUREMENTS)]


# -- round-trip times -------------------------------------------------------------------------------------------------


class MeasureRtt(Call, frozen=True):
    """Asks the receiver for its round-trip times to members: to ping each anew unless what it knows is of at most
    ``max_age_s``. Refused with ``too-many-measurements`` while it has pinged enough for others."""

    targets: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_TARGETS)]
    max_age_s: Quantity


class MeasuredRtt(Message, frozen=True):
    """The least of some pings, and how long ago they were; ``code`` and ``reason`` say why there is none."""

    target: Name
    rtt_ms: Quantity = 0.0
    age_s: Quantity = 0.0
    code: Line = ""
    reason: Line = ""


class MeasuredRtts(Message, frozen=True):
    measured: Annotated[tuple[MeasuredRtt, ...], Meta(max_length=MAX_TARGETS)]


# -- reachability -----------------------------------------------------------------------------------------------------


class ReachBack(Call, frozen=True):
    """Asks the receiver to ping the caller, and to connect to it, at the address it knows of it. Refused with
    ``too-many-measurements`` where the caller has asked often."""


class ReachedBack(Message, frozen=True):
    """How that went; ``udp`` and ``tcp`` say why it failed, and are empty where it did not."""

    version: Line
    wall_ms: Count
    seen: Endpoint
    known: Endpoint
    udp_ms: Quantity = 0.0
    tcp_ms: Quantity = 0.0
    udp: Line = ""
    tcp: Line = ""


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
    "destroy-parts": (DestroyParts, PartsDestroyed),
    "claim-part": (ClaimPart, Claimed),
    "report-state": (ReportState, None),
    "list-queries": (ListQueries, QueryRecords),
    "show-query": (ShowQuery, QueryDescription),
    "stop-query": (StopQuery, QueryDescription),
    "describe-parts": (DescribeParts, PartStates),
    "keep-measurements": (KeepMeasurements, None),
    "recall-measurements": (RecallMeasurements, Measurements),
    "measure-rtt": (MeasureRtt, MeasuredRtts),
    "reach-back": (ReachBack, ReachedBack),
}
"""Method name to request and reply."""

_METHODS = {call: name for name, (call, _) in CALLS.items()}


def method_of(call: Call) -> str:
    return _METHODS[type(call)]
