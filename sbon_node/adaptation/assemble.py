"""Assembles the movers of operators: their hosts, the leaders of their queries, users, and a node that is drained or leaves."""

from typing import NamedTuple

from sbon_node.adaptation.decisions import LeaderDecisions
from sbon_node.adaptation.drain import Draining, Leaving, MoveTargets, Parts
from sbon_node.adaptation.look import OptimizerParts
from sbon_node.adaptation.mover import Mover, RequestedMoves
from sbon_node.adaptation.optimizer import LocalOptimizer
from sbon_node.adaptation.settings import AdaptationSettings
from sbon_node.adaptation.whole import LeaderParts, Replacements
from sbon_node.context import Context
from sbon_node.engine.copies.settings import MigrationSettings
from sbon_node.hosting.assemble import Hosting
from sbon_node.hosting.machine.machine_resources import Machine
from sbon_node.ownership.assemble import Ownership
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import Strategies
from sbon_node.queries.assemble import Queries


class LocalMoves(NamedTuple):
    """Moves of operators that this node hosts, and the decisions about moves that it remembers."""

    mover: Mover
    optimizer: LocalOptimizer
    decisions: LeaderDecisions
    """Decisions about the queries that this node leads."""


class Adaptation(NamedTuple):
    """Parts that move operators of any query, and take this node out of the cluster."""

    local: LocalMoves
    requested: RequestedMoves
    """Moves that users, or leaders of queries, ask for."""
    replacements: Replacements
    leaving: Leaving
    targets: MoveTargets
    draining: Draining


def assemble_local(
    context: Context,
    ownership: Ownership,
    hosting: Hosting,
    machine: Machine,
    settings: AdaptationSettings,
    placement: PlacementSettings,
) -> LocalMoves:
    """Build the parts that need no query's record; nothing of them runs yet."""
    moves = hosting.moves
    parts = OptimizerParts(context, hosting.operators, ownership.record_acceptors, settings, placement)
    mover = Mover(context, moves.departures)
    optimizer = LocalOptimizer(parts, mover, moves.host_check, machine.load)
    decisions = LeaderDecisions(context.name, context.bus, context.clock.wall_ms, settings.decisions)
    return LocalMoves(mover, optimizer, decisions)


class MovingSettings(NamedTuple):
    """Settings of moves of whole queries, and of nodes that are drained."""

    adaptation: AdaptationSettings
    migration: MigrationSettings
    placement: PlacementSettings
    strategies: Strategies


def assemble(
    context: Context, ownership: Ownership, hosting: Hosting, local: LocalMoves, queries: Queries, settings: MovingSettings
) -> Adaptation:
    """Build the parts above queries, of which none runs yet."""
    leader, lookup, migration = queries.leader, queries.lookup, settings.migration
    requested = RequestedMoves(context, lookup, ownership.operators, local.mover, migration.report_s)
    led = LeaderParts(context, leader, requested, local.decisions, settings.placement)
    replacements = Replacements(led, settings.adaptation, settings.strategies)
    acceptors, repair = ownership.record_acceptors, ownership.repair
    leaving = Leaving(context, leader, hosting.destroyer, acceptors, repair, hosting.epochs)
    targets = MoveTargets(context, lookup, migration.candidates)
    parts = Parts(hosting.operators, hosting.sources, hosting.moves, local.mover, targets, leaving)
    return Adaptation(local, requested, replacements, leaving, targets, Draining(context, migration, parts))
