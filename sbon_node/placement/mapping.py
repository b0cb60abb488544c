"""From wishes to nodes: who is asked, in which order, and what is said when nobody has room (SBON, section 3.1.3)."""

from __future__ import annotations

from collections.abc import Sequence

from sbon_node.engine.interface import Needs
from sbon_node.errors import SbonError
from sbon_node.placement.network_view import Answer, NetworkView, Point
from sbon_node.placement.objective import longest_delay_ms, network_usage
from sbon_node.placement.problem import Assignment, Candidate, Operator, Placement, PlacementProblem, total
from sbon_node.placement.settings import PlacementSettings

UNKNOWN_MS = 1e6
"""Distance of a node that has no coordinate yet: it is asked after all others."""

REFUSED_BEFORE = "refused to reserve"


async def choose_host(
    operator: Operator,
    point: Point,
    view: NetworkView,
    settings: PlacementSettings,
    placed: Sequence[Assignment],
    operators: Sequence[Operator],
    reason: str = "",
) -> Assignment:
    """The nearest node to ``point`` that has room.

    The k nearest are asked directly, all at once; of those that accept, the nearest in the cost space with load is taken. While
    none accepts, k is doubled, until every node has been asked, those whose place is unknown last: then :class:`SbonError`
    ``no-room``. Room already promised in this query (``placed``) counts as taken, as nothing is reserved yet.
    """
    answers: dict[str, Answer] = {}
    k, total = settings.k, len(view.nodes())
    while True:
        ranked = view.nearest(point, k, exclude=operator.refused)
        if k >= total:
            known = {node for node, _ in ranked} | operator.refused
            ranked += [(node, UNKNOWN_MS) for node in view.nodes() if node not in known]
        fresh = [node for node, _ in ranked if node not in answers]
        answers.update(await _ask(fresh, operator.needs, view, placed, operators))
        candidates = _candidates(ranked, answers)
        chosen = next((one for one in candidates if one.accepted), None)
        if chosen is not None:
            rank = candidates.index(chosen)
            why = reason or f"nearest of {len(candidates)} asked to its virtual place ({chosen.distance_ms:.1f} ms)"
            if rank and not reason:
                why = f"nearest with room, number {rank + 1} of {len(candidates)} asked ({chosen.distance_ms:.1f} ms)"
            return Assignment(operator=operator.id, node=chosen.node, reason=why, virtual=point, candidates=candidates)
        if k >= total:
            raise no_room(operator, candidates)
        k *= 2


async def first_with_room(
    operator: Operator,
    wishes: Sequence[str],
    view: NetworkView,
    placed: Sequence[Assignment],
    operators: Sequence[Operator],
    reason: str,
) -> Assignment:
    """The first of ``wishes`` that has room, asked one after another; ``no-room`` where none has."""
    candidates: list[Candidate] = []
    for node in wishes:
        if node in operator.refused:
            continue
        answer = (await _ask([node], operator.needs, view, placed, operators))[node]
        candidates.append(Candidate(node=node, distance_ms=0.0, accepted=answer.accepted, reason=answer.reason))
        if answer.accepted:
            why = reason if len(candidates) == 1 else f"{reason}; {len(candidates) - 1} before it had no room"
            return Assignment(operator=operator.id, node=node, reason=why, candidates=tuple(candidates))
    raise no_room(operator, tuple(candidates))


def by_latency(view: NetworkView, node: str, exclude: frozenset[str] = frozenset()) -> list[str]:
    """All nodes, the one nearest to ``node`` (itself, if it may host) first."""
    hosts = [one for one in view.nodes() if one not in exclude]
    away_ms = view.latencies_ms([node], hosts)[0].tolist() if hosts else []
    return [one for _, _, one in sorted((ms, one != node, one) for ms, one in zip(away_ms, hosts, strict=True))]


def no_room(operator: Operator, candidates: Sequence[Candidate]) -> SbonError:
    """The error that tells every node asked and why it refused."""
    details = [f"{one.node}: {one.reason or 'refused'}" for one in candidates]
    details += [f"{node}: {REFUSED_BEFORE}" for node in sorted(operator.refused)]
    needs = f"{operator.needs.cores:g} cores, {operator.needs.memory_mb:g} MB, {operator.needs.bandwidth_bytes_s:g} bytes/s"
    return SbonError(
        "no-room",
        f"no node has room for operator {operator.id} ({needs}); {len(details)} asked",
        where=operator.id,
        hint="stop queries, or add nodes",
        details=tuple(details),
    )


def finish(
    strategy: str,
    problem: PlacementProblem,
    assignments: Sequence[Assignment],
    view: NetworkView,
    questions_before: int,
    predicted: float | None = None,
) -> Placement:
    """The placement with its usage and delay as they are known now, and the questions it took."""
    hosts = {one.operator: one.node for one in assignments}
    return Placement(
        strategy=strategy,
        assignments=tuple(assignments),
        usage=network_usage(problem, hosts, view.latency_ms),
        questions=view.questions - questions_before,
        delay_ms=longest_delay_ms(problem, hosts, view.latency_ms),
        predicted=predicted,
    )


async def _ask(
    nodes: Sequence[str], needs: Needs, view: NetworkView, placed: Sequence[Assignment], operators: Sequence[Operator]
) -> dict[str, Answer]:
    """Asks each node for room for this operator beside those of the query that are to go there already."""
    promised: dict[str, list[Needs]] = {}
    by_id = {operator.id: operator.needs for operator in operators}
    for one in placed:
        promised.setdefault(one.node, []).append(by_id[one.operator])
    answers = await view.ask_all([node for node in nodes if node not in promised], needs)
    for node in nodes:
        if node in promised:
            answers[node] = await view.ask(node, total([needs, *promised[node]]))
    return answers


def _candidates(ranked: Sequence[tuple[str, float]], answers: dict[str, Answer]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(node=node, distance_ms=distance, accepted=answers[node].accepted, reason=answers[node].reason)
        for node, distance in sorted(ranked, key=lambda one: (one[1], one[0]))
    )
