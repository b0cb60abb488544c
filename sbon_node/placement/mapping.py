"""From wishes to nodes: who is asked, in which order, and what is said when nobody has room (SBON, section 3.1.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sbon_node.engine.interface import Needs
from sbon_node.errors import SbonError
from sbon_node.placement.network_view import UNKNOWN_MS, Answer, NetworkView, Point
from sbon_node.placement.objective import longest_delay_ms, longest_way, network_usage, processing_ms
from sbon_node.placement.partial import Partial
from sbon_node.placement.problem import Assignment, Candidate, Operator, Placement, PlacementProblem, total
from sbon_node.placement.settings import PlacementSettings

REFUSED_BEFORE = "refused to reserve"


async def choose_host(
    operator: Operator,
    point: Point,
    view: NetworkView,
    settings: PlacementSettings,
    placed: Sequence[Assignment],
    operators: Sequence[Operator],
    reason: str = "",
    partial: Partial | None = None,
) -> Assignment:
    """The nearest node to ``point`` that has room, and keeps to the bound on delay where a ``partial`` placement is given.

    The k nearest are asked directly, all at once; of those that accept, the nearest in the cost space with load is taken. While
    none accepts, k is doubled, until every node has been asked, those whose place is unknown last: then :class:`SbonError`
    ``no-room``, or ``delay-bound``. Room already promised in this query (``placed``) counts as taken, as nothing is reserved yet.
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
        candidates = _in_time(operator, _candidates(ranked, answers), answers, partial)
        chosen = next((one for one in candidates if one.accepted), None)
        if chosen is not None:
            rank = candidates.index(chosen)
            away = f"({chosen.distance_ms:.1f} ms in the cost space)"
            why = reason or f"nearest of {len(candidates)} asked to its virtual place {away}"
            if rank and not reason:
                why = f"nearest with room, number {rank + 1} of {len(candidates)} asked {away}"
            if partial is not None:
                partial.place(operator.id, chosen.node)
            return Assignment(operator=operator.id, node=chosen.node, reason=why, virtual=point, candidates=candidates)
        if k >= total:
            raise _refusal(operator, candidates, partial)
        k *= 2


async def first_with_room(
    operator: Operator,
    wishes: Sequence[str],
    view: NetworkView,
    placed: Sequence[Assignment],
    operators: Sequence[Operator],
    reason: str,
    partial: Partial | None = None,
) -> Assignment:
    """The first of ``wishes`` that has room, asked one after another, and keeps to the bound on delay where a ``partial``
    placement is given; ``no-room`` or ``delay-bound`` where none is."""
    candidates: list[Candidate] = []
    for node in wishes:
        if node in operator.refused:
            continue
        answer = (await _ask([node], operator.needs, view, placed, operators))[node]
        asked = (Candidate(node=node, distance_ms=0.0, accepted=answer.accepted, reason=answer.reason),)
        candidates += _in_time(operator, asked, {node: answer}, partial)
        if candidates[-1].accepted:
            if partial is not None:
                partial.place(operator.id, node)
            why = reason if len(candidates) == 1 else f"{reason}; {len(candidates) - 1} before it had no room"
            return Assignment(operator=operator.id, node=node, reason=why, candidates=tuple(candidates))
    raise _refusal(operator, tuple(candidates), partial)


def by_latency(view: NetworkView, node: str, exclude: frozenset[str] = frozenset()) -> list[str]:
    """All nodes, the one nearest to ``node`` (itself, if it may host) first."""
    hosts = [one for one in view.nodes() if one not in exclude]
    away_ms = view.latencies_ms([node], hosts)[0].tolist() if hosts else []
    return [one for _, _, one in sorted((ms, one != node, one) for ms, one in zip(away_ms, hosts, strict=True))]


def along(way: Sequence[str], view: NetworkView, operator: Operator) -> list[str]:
    """Wishes: the hosts of ``way`` in its order, then all others, those nearest to its first node first."""
    hosts = set(view.nodes())
    wishes = [node for node in way if node in hosts]
    return list(dict.fromkeys([*wishes, *by_latency(view, way[0], operator.refused)]))


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


def delay_bound(bound_ms: float, reached_ms: float, details: Sequence[str] = ()) -> SbonError:
    """The error that tells how near a placement came; ``details`` name the links of its longest way."""
    near = f"the best takes {reached_ms:.1f} ms, {reached_ms - bound_ms:.1f} ms too long"
    if reached_ms >= UNKNOWN_MS:
        near = "not all ways are known, so that no delay can be promised"
    return SbonError(
        "delay-bound",
        f"no placement was found within {bound_ms:g} ms; {near}",
        where="max_delay_ms",
        hint="allow more delay, try another strategy (optimal looks at all nodes), or add nodes near the ends",
        details=tuple(details),
    )


def nowhere_in_time(bound_ms: float) -> SbonError:
    """The error where nodes have room for each operator, and ways are short enough elsewhere, but not both for all."""
    hint = "allow more delay, or stop queries where there is no room near the consumer"
    message = f"no placement was found that takes at most {bound_ms:g} ms and for which nodes have room"
    return SbonError("delay-bound", message, where="max_delay_ms", hint=hint)


def finish(
    strategy: str,
    problem: PlacementProblem,
    assignments: Sequence[Assignment],
    view: NetworkView,
    questions_before: int,
    predicted: float | None = None,
    cores: Mapping[str, float] | None = None,
    discoveries: int = 0,
) -> Placement:
    """The placement with its usage and delay as they are known now, and the questions it took. ``cores`` are those its hosts have
    free without it, where that is known.

    Raises :class:`SbonError` ``delay-bound`` where it breaks that.
    """
    hosts = {one.operator: one.node for one in assignments}
    delay_ms = longest_delay_ms(problem, hosts, view.latency_ms, processing_ms(problem, hosts, cores or {}))
    bound = problem.bounds.max_delay_ms
    if bound is not None and delay_ms > bound + 1e-6:
        raise delay_bound(bound, delay_ms, legs(problem, hosts, view, cores or {}))
    return Placement(
        strategy=strategy,
        assignments=tuple(assignments),
        usage=network_usage(problem, hosts, view.latency_ms),
        questions=view.questions - questions_before,
        delay_ms=delay_ms,
        predicted=predicted,
        discoveries=discoveries,
    )


def legs(problem: PlacementProblem, hosts: Mapping[str, str], view: NetworkView, cores: Mapping[str, float]) -> list[str]:
    """The links of a placement's longest way, each with its latency and what its end takes for a row, for people."""
    at, takes_ms = {**problem.pinned, **hosts}, processing_ms(problem, hosts, cores)
    found = []
    for edge, ms in longest_way(problem, hosts, view.latency_ms, takes_ms):
        latency = f"{ms:.1f} ms" if ms < UNKNOWN_MS else "not known"
        worked = f", and {takes_ms[edge.target]:.1f} ms there" if takes_ms.get(edge.target) else ""
        found.append(f"{edge.source} at {at[edge.source]} to {edge.target} at {at[edge.target]}: {latency}{worked}")
    return found


def _refusal(operator: Operator, candidates: Sequence[Candidate], partial: Partial | None) -> SbonError:
    """No node has room, or those that have are too far."""
    found = no_room(operator, candidates)
    if partial is None or not partial.late:
        return found
    message = f"no node with room for operator {operator.id} is within the bound on delay; {len(found.details)} asked"
    hint = "allow more delay, or add nodes near the sources or the consumer"
    return SbonError("delay-bound", message, where="max_delay_ms", hint=hint, details=found.details)


def _in_time(
    operator: Operator, candidates: tuple[Candidate, ...], answers: Mapping[str, Answer], partial: Partial | None
) -> tuple[Candidate, ...]:
    """Those that would accept and make ways too long refused, up to the first that does not."""
    if partial is None:
        return candidates
    partial.know({one.node: answers[one.node] for one in candidates if one.accepted})
    found = list(candidates)
    for number, one in enumerate(found):
        if one.accepted:
            late = partial.lateness(operator, one.node)
            if not late:
                break
            found[number] = msgspec.structs.replace(one, accepted=False, reason=late)
    return tuple(found)


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
