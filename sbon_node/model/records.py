"""The record of a query: its authoritative state."""

import msgspec

from sbon_protocol.api.adaptation import OFF, Adapt
from sbon_protocol.api.durability import LOCAL, Durability
from sbon_protocol.api.operators import OnError
from sbon_protocol.api.placement import Placement
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.queries import QueryInfo, SinkBegin, SinkSpec, Submission
from sbon_protocol.api.query_ids import part_of, sink_of
from sbon_protocol.api.states import further_sink_states, query_states
from sbon_protocol.api.states.further_sink_states import FurtherSinkState
from sbon_protocol.api.states.query_states import QueryState
from sbon_protocol.api.strategies import Goal
from sbon_protocol.api.usage import QueryUsage


class QueryDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The document of a query that its submission made."""

    sql: str
    sink: SinkSpec
    plan: Plan
    submission: Submission | None = None
    """The submission with which it begins anew from its sources, where it may."""


class QueryEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The document of a query that is over: its last description, without what other documents have, and network usage."""

    last: QueryInfo | None
    query_usage: QueryUsage | None


class FurtherSink(msgspec.Struct, frozen=True, kw_only=True):
    """A sink that was added to the query while that ran, at ``node``. Its random ``claim`` tells it from others of its id."""

    component: str
    claim: str
    node: str
    spec: SinkSpec
    begin: SinkBegin = ""
    temporary: bool = False
    state: FurtherSinkState = further_sink_states.OPENING
    reason: str = ""
    begins_after: int = 0
    """Rows of the result before it."""
    opened: bool = False
    """Whether it has run: what it has delivered stays once it is removed."""
    cleared: bool = False
    """Whether one that has failed is ended, and its rows are kept no more."""

    @property
    def part(self) -> str:
        """The id within the query."""
        return part_of(self.component)


class QueryRegister(Goal, frozen=True, kw_only=True):
    """The value of a query's register: what changes, and the digests of the documents beside it, empty for none.

    ``hosts`` are the nodes of its operators and sources. Epochs are in the operators' own registers.

    A query that is over keeps its record as a tombstone, with its last description and network usage, so that a host that was
    away does not revive it; ``cleaned`` means that its hosts know of its end, ``accepted`` that its submitter knows that it runs.
    """

    id: str
    """The uid."""
    name: str = ""
    state: QueryState
    reason: str = ""
    submitted_ms: int = 0
    consumer: str
    on_error: OnError = "fail"
    adapt: Adapt = OFF
    durability: Durability = LOCAL
    hosts: dict[str, str] = msgspec.field(default_factory=dict)
    cleaned: bool = False
    accepted: bool = False
    withdrawn: bool = False
    """Its submission was refused and is undone: no list has it, and its acceptors forget it."""
    submitter: str = ""
    submitter_instance: str = ""
    """The node that took the submission; while the query is placed, it alone works for it."""
    restarted_from: str = ""
    """The uid of the lost query in place of which it has begun anew."""
    restarts: int = 0
    """Times that it, and those before it, have begun anew."""
    restart_due: bool = False
    """Whether a part of it was lost, and it has yet to begin anew."""
    restarted_as: str = ""
    """The uid under which it has begun anew."""
    more_sinks: tuple[FurtherSink, ...] = ()
    """Sinks beside the first one; at most :data:`~sbon_protocol.api.query_ids.MAX_SINKS` in all."""
    sink_finished: bool = False
    """Whether the first sink has delivered all rows, and others have yet to."""
    definition_digest: str = ""
    placement_digest: str = ""
    end_digest: str = ""

    @property
    def called(self) -> str:
        """The name that people type; a record of before there were uids has only its id."""
        return self.name or self.id

    @property
    def refused(self) -> bool:
        """Return whether nothing of it may stay if it ends now, not even results: its submission was not accepted."""
        return not self.accepted and self.state != query_states.FINISHED

    @property
    def sink_component(self) -> str:
        return sink_of(self.id)


class MoveLease(msgspec.Struct, frozen=True, kw_only=True):
    """A move under way: its ``attempt``, and the node that is to be the next host, with its instance."""

    attempt: str
    target: str
    instance: str


class OperatorRegister(msgspec.Struct, frozen=True, kw_only=True):
    """The value of the register of an operator or sink: who hosts it.

    ``instance`` is the host's, or empty if it was not known. ``backup``, if there is one, is the node that has stored all that
    the operator has shown, and goes on if the host is lost. ``definition_digest`` names the document with its specification, the
    definition of the query that made it. ``queries`` are the uids of the queries that refer to it. ``move`` is set by the host as
    long as it tries to hand the operator over; nobody relies on it to be there. ``claim`` is that of a further sink; once that is
    removed or has failed, there is no ``host``.
    """

    id: str
    host: str
    instance: str
    epoch: int
    definition_digest: str
    queries: tuple[str, ...]
    move: MoveLease | None = None
    backup: str = ""
    backup_instance: str = ""
    claim: str = ""


class SourceRegister(msgspec.Struct, frozen=True, kw_only=True):
    """The value of the register of a replicated source: the instance that hosts it in ``epoch``, and its backup, if any."""

    id: str
    host: str
    instance: str
    epoch: int = 1
    backup: str = ""
    backup_instance: str = ""


class QueryRecord(QueryRegister, frozen=True, kw_only=True):
    """The authoritative state of a query, with its goal: its register and the documents that this refers to."""

    sql: str
    sink: SinkSpec
    plan: Plan
    submission: Submission | None = None
    placement: Placement | None = None
    last: QueryInfo | None = None
    query_usage: QueryUsage | None = None
    version: int = 0
    """The version of its register."""

    @property
    def components(self) -> tuple[str, ...]:
        """The ids of its operators and sinks."""
        sinks = (self.sink_component, *(one.component for one in self.more_sinks))
        return (*(operator.id for operator in self.plan.operators), *sinks)

    @property
    def operators(self) -> tuple[str, ...]:
        """The ids of its operators and of those of other queries that it shares."""
        return (*(operator.id for operator in self.plan.operators), *(shared.id for shared in self.plan.shared))

    @property
    def parts(self) -> tuple[str, ...]:
        """The ids of its operators, shared ones too, and its sinks."""
        return (*self.components, *(shared.id for shared in self.plan.shared))

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(sorted({p.source.stream for p in self.plan.sources}))
