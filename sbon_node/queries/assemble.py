"""Assembles what accepts queries, keeps their records, describes and explains them, and lets users follow them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.context import Context
from sbon_node.hosting.assemble import Hosting
from sbon_node.ownership.assemble import Ownership
from sbon_node.ownership.names import QueryNames
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import Strategies
from sbon_node.queries.describing.describe import Descriptions
from sbon_node.queries.describing.lookup import QueryLookup
from sbon_node.queries.driving.deploy import Decided, QueryHosts
from sbon_node.queries.driving.leader import QueryLeader
from sbon_node.queries.explaining.placements import Knowledge, PlacementExplainer
from sbon_node.queries.explaining.plan_explanation import Explainer
from sbon_node.queries.record_calls import RecordCalls
from sbon_node.queries.sinks.follow import Follows
from sbon_node.queries.sinks.further_sinks import FurtherSinks, SinkRequests
from sbon_node.queries.sinks.sink_failovers import SinkFailovers
from sbon_node.queries.submitting.declarations import Declarations
from sbon_node.queries.submitting.hooks import SubmissionHook
from sbon_node.queries.submitting.planning import Planning
from sbon_node.queries.submitting.reuse import Reuse
from sbon_node.queries.submitting.submit import Restarts, Submitter
from sbon_protocol.api.adaptation import Adapt, MoveDecision
from sbon_protocol.api.durability import Durability


class QuerySettings(NamedTuple):
    """Settings of queries. ``adapt`` and ``durability`` are those of queries that name none."""

    connectors: ConnectorSettings
    placement: PlacementSettings
    strategies: Strategies
    adapt: Adapt
    durability: Durability
    fresh_s: float
    """Age up to which an explanation believes a measured latency."""


class Decisions(NamedTuple):
    """Where descriptions of queries get the decisions about moves of operators from."""

    of_host: Callable[[str], tuple[MoveDecision, ...]]
    """Return the decisions of this node about an operator that it hosts, the oldest first."""
    of_leader: Decided
    """Return the operators of a query with the decisions of its leader, if that is this node."""


class Queries(NamedTuple):
    """The parts that serve queries of any submitter."""

    lookup: QueryLookup
    """Finds any query of the cluster, shows it and stops it."""
    leader: QueryLeader
    """The queries whose records this node keeps."""
    planning: Planning
    reuse: Reuse
    declarations: Declarations
    """Declares streams and views, and drops them."""
    explainer: Explainer
    placement_explainer: PlacementExplainer
    sinks: SinkRequests
    """Adds sinks to running queries, and removes them."""
    follows: Follows
    failovers: SinkFailovers
    further_sinks: FurtherSinks
    names: QueryNames


class Submitting(NamedTuple):
    """The parts that begin queries: for users, and anew in place of lost ones."""

    submitter: Submitter
    restarts: Restarts


def assemble(context: Context, ownership: Ownership, hosting: Hosting, settings: QuerySettings, decisions: Decisions) -> Queries:
    """Build the parts, of which none runs yet."""
    catalogue, owners, records = ownership.catalogue, ownership.operators, ownership.records
    hosts = QueryHosts(context, owners, decisions.of_leader, catalogue.node_of)
    leader = QueryLeader(context, hosting.measurements, records, hosts)
    keeping = (context, records, leader, owners, hosts)
    further_sinks = FurtherSinks(*keeping)
    RecordCalls(*keeping, further_sinks, hosting.destroyer.components, hosting.sinks.rows)
    described = (hosting.sources, hosting.operators, hosting.moves, hosting.sinks, hosting.backups.keeper)
    Descriptions(context, *described, decisions.of_host)

    lookup, placing = QueryLookup(context), (settings.placement, settings.strategies)
    default = (settings.adapt, settings.durability)
    planning = Planning(context, catalogue, hosting.measurements, hosting.engine, *placing, *default)
    reuse = Reuse(context, planning, owners)
    sinks = SinkRequests(context, lookup, planning, settings.connectors)
    return Queries(
        lookup,
        leader,
        planning,
        reuse,
        Declarations(planning, catalogue, lookup.check_unread, lookup.stop),
        Explainer(context, planning, lookup, hosting.sources, reuse),
        PlacementExplainer(context, planning, lookup, reuse, *placing, Knowledge(context, settings.fresh_s)),
        sinks,
        Follows(context, hosting.sinks, lookup, sinks),
        SinkFailovers(*keeping),
        further_sinks,
        QueryNames(ownership.registers, records, lookup.is_over),
    )


def assemble_submitting(
    context: Context, ownership: Ownership, queries: Queries, connectors: ConnectorSettings, hooks: Sequence[SubmissionHook]
) -> Submitting:
    """Build what begins queries; the ``hooks`` take part in submissions."""
    leader, lookup = queries.leader, queries.lookup
    names = (ownership.operators, queries.names)
    submitter = Submitter(context, queries.planning, leader, *names, connectors, queries.reuse, hooks)
    return Submitting(submitter, Restarts(context, ownership.records, leader, lookup, submitter))
