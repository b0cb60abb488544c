"""Map preferred nodes to hosts: the order of capacity probes and the errors (SBON, section 3.1.3)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from sbon_node.placement.model.latency_matrix import BATCH
from sbon_node.placement.model.network_view import UNKNOWN_MS, Answer, NetworkView, Point
from sbon_node.placement.model.objective import longest_delay_ms, longest_path, network_usage, processing_ms
from sbon_node.placement.model.problem import Operator, PlacementProblem, total
from sbon_node.placement.selection.partial import Partial
from sbon_node.placement.settings import PlacementSettings
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.placement import Assignment, Candidate, Placement
from sbon_protocol.errors import SbonError

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
    """Return the nearest node to ``point`` with capacity.

    If ``partial`` is given, the node also keeps the bound on delay. The k nearest nodes are asked directly, all at once. The
    nearest that accepts is taken, by distance in the cost space with the load that it answers. While none accepts, k doubles
    until every node has been asked, those without a known coordinate last. Then the call raises :class:`SbonError`
    ``no-capacity`` or ``delay-bound``. Capacity already promised in this query (``placed``) counts as taken, because nothing is
    reserved yet.
    """
    answers: dict[str, Answer] = {}
    k, total = settings.k, len(view.nodes())
    while True:
        fresh = [node for node, _ in _nearest(operator, point, view, k) if node not in answers]
        answers.update(await _ask(fresh, operator.needs, view, placed, operators))
        ranked = [(node, away_ms) for node, away_ms in _nearest(operator, point, view, k) if node in answers]
        candidates = _in_time(operator, _candidates(ranked, answers), answers, partial)
        chosen = next((candidate for candidate in candidates if candidate.accepted), None)
        if chosen is not None:
            rank = candidates.index(chosen)
            away = f"({chosen.distance_ms:.1f} ms in the cost space)"
            why = reason or f"nearest of {len(candidates)} asked to the best point for it {away}"
            if rank and not reason:
                why = f"nearest with capacity, number {rank + 1} of {len(candidates)} asked {away}"
            if partial is not None:
                partial.place(operator.id, chosen.node)
            return Assignment(operator=operator.id, node=chosen.node, reason=why, virtual=point, candidates=candidates)
        if k >= total:
            raise _refusal(operator, candidates, partial)
        k *= 2


def _nearest(operator: Operator, point: Point, view: NetworkView, k: int) -> list[tuple[str, float]]:
    """Return the k nearest nodes that have not refused the operator; if these are all, those without a coordinate follow."""
    ranked = view.nearest(point, k, exclude=operator.refused)
    if k < len(view.nodes()):
        return ranked
    known = {node for node, _ in ranked} | operator.refused
    return ranked + [(node, UNKNOWN_MS) for node in view.nodes() if node not in known]


async def first_with_capacity(
    operator: Operator,
    candidate_nodes: Sequence[str],
    view: NetworkView,
    placed: Sequence[Assignment],
    operators: Sequence[Operator],
    reason: str,
    partial: Partial | None = None,
) -> Assignment:
    """Return the first of ``candidate_nodes`` that has capacity, asked one after another, and in time if ``partial`` is given.

    Raises ``no-capacity`` or ``delay-bound`` where there is none.
    """
    candidates: list[Candidate] = []
    for node in candidate_nodes:
        if node in operator.refused:
            continue
        answer = (await _ask([node], operator.needs, view, placed, operators))[node]
        candidate = (Candidate(node=node, distance_ms=0.0, accepted=answer.accepted, reason=answer.reason),)
        candidates += _in_time(operator, candidate, {node: answer}, partial)
        if candidates[-1].accepted:
            if partial is not None:
                partial.place(operator.id, node)
            why = reason if len(candidates) == 1 else f"{reason}; {len(candidates) - 1} before it had no capacity"
            return Assignment(operator=operator.id, node=node, reason=why, candidates=tuple(candidates))
    raise _refusal(operator, tuple(candidates), partial)


def by_latency(view: NetworkView, node: str, exclude: frozenset[str] = frozenset()) -> list[str]:
    """Return all nodes, nearest to ``node`` first; ``node`` itself leads if it may host."""
    hosts = [host for host in view.nodes() if host not in exclude]
    away_ms = view.latencies_ms([node], hosts)[0].tolist() if hosts else []
    return [host for _, _, host in sorted((ms, host != node, host) for ms, host in zip(away_ms, hosts, strict=True))]


def along(path: Sequence[str], view: NetworkView, operator: Operator) -> list[str]:
    """Return the hosts on ``path`` in its order, then all others. Those nearest to its first node come first."""
    hosts = set(view.nodes())
    return list(dict.fromkeys([*(node for node in path if node in hosts), *by_latency(view, path[0], operator.refused)]))


def no_capacity(operator: Operator, candidates: Sequence[Candidate]) -> SbonError:
    """Return the error that names every node asked and its reason to refuse."""
    details = [f"{candidate.node}: {candidate.reason or 'refused'}" for candidate in candidates]
    details += [f"{node}: {REFUSED_BEFORE}" for node in sorted(operator.refused)]
    needs = f"{operator.needs.cores:g} cores, {operator.needs.memory_mb:g} MB, {operator.needs.bandwidth_bytes_s:g} bytes/s"
    message, hint = (
        f"no node has capacity for operator {operator.id} ({needs}); {len(details)} asked",
        "stop queries, or add nodes",
    )
    return SbonError("no-capacity", message, where=operator.id, hint=hint, details=tuple(details))


def delay_bound(bound_ms: float, reached_ms: float, details: Sequence[str] = ()) -> SbonError:
    """Return the error that states the best delay. ``details`` name the links of the longest path."""
    near = f"the best takes {reached_ms:.1f} ms, {reached_ms - bound_ms:.1f} ms too long"
    if reached_ms >= UNKNOWN_MS:
        near = "not all latencies are known, so no delay can be guaranteed"
    message = f"no placement was found within {bound_ms:g} ms; {near}"
    hint = "allow more delay, try another strategy (optimal looks at all nodes), or add nodes near the ends"
    return SbonError("delay-bound", message, where="max_delay_ms", hint=hint, details=tuple(details))


def nowhere_in_time(bound_ms: float) -> SbonError:
    """Return the error if capacity and short paths exist for each operator, but not together."""
    hint = "allow more delay, or stop queries to free capacity near the consumer"
    message = f"no placement within {bound_ms:g} ms was found whose nodes have capacity"
    return SbonError("delay-bound", message, where="max_delay_ms", hint=hint)


def finish(
    strategy: str,
    problem: PlacementProblem,
    assignments: Sequence[Assignment],
    view: NetworkView,
    probes_before: int,
    predicted: float | None = None,
    cores: Mapping[str, float] | None = None,
    discoveries: int = 0,
) -> Placement:
    """Return the placement with its current usage and delay, and the probes it took.

    ``cores`` are those that its hosts have free without it, where known. Raises :class:`SbonError` ``delay-bound``.
    """
    hosts = {assignment.operator: assignment.node for assignment in assignments}
    delay_ms = longest_delay_ms(problem, hosts, view.latency_ms, processing_ms(problem, hosts, cores or {}))
    bound = problem.bounds.max_delay_ms
    if bound is not None and delay_ms > bound + 1e-6:
        raise delay_bound(bound, delay_ms, legs(problem, hosts, view, cores or {}))
    return Placement(
        strategy=strategy,
        assignments=tuple(assignments),
        usage=network_usage(problem, hosts, view.latency_ms),
        probes=view.probes - probes_before,
        delay_ms=delay_ms,
        predicted=predicted,
        discoveries=discoveries,
    )


def legs(problem: PlacementProblem, hosts: Mapping[str, str], view: NetworkView, cores: Mapping[str, float]) -> list[str]:
    """Return the links of the longest path with latencies and processing times, as text for users."""
    at, takes_ms = {**problem.pinned, **hosts}, processing_ms(problem, hosts, cores)
    legs = []
    for edge, ms in longest_path(problem, hosts, view.latency_ms, takes_ms):
        latency = f"{ms:.1f} ms" if ms < UNKNOWN_MS else "not known"
        worked = f", and {takes_ms[edge.target]:.1f} ms there" if takes_ms.get(edge.target) else ""
        legs.append(f"{edge.source} at {at[edge.source]} to {edge.target} at {at[edge.target]}: {latency}{worked}")
    return legs


def _refusal(operator: Operator, candidates: Sequence[Candidate], partial: Partial | None) -> SbonError:
    """Return the error: no node has capacity, or those with capacity are too far."""
    error = no_capacity(operator, candidates)
    if partial is None or not partial.late:
        return error
    message = f"no node with capacity for operator {operator.id} is within the bound on delay; {len(error.details)} asked"
    hint = "allow more delay, or add nodes near the sources or the consumer"
    return SbonError("delay-bound", message, where="max_delay_ms", hint=hint, details=error.details)


def _in_time(
    operator: Operator, candidates: tuple[Candidate, ...], answers: Mapping[str, Answer], partial: Partial | None
) -> tuple[Candidate, ...]:
    """Mark accepting candidates that break the bound on delay as refused. It stops at the first that keeps the bound."""
    if partial is None:
        return candidates
    partial.know({candidate.node: answers[candidate.node] for candidate in candidates if candidate.accepted})
    checked = list(candidates)
    for number, candidate in enumerate(checked):
        if candidate.accepted:
            late = partial.lateness(operator, candidate.node)
            if not late:
                break
            checked[number] = msgspec.structs.replace(candidate, accepted=False, reason=late)
    return tuple(checked)


async def _ask(
    nodes: Sequence[str], needs: Needs, view: NetworkView, placed: Sequence[Assignment], operators: Sequence[Operator]
) -> dict[str, Answer]:
    """Ask each node for capacity for this operator and those of the query placed there already."""
    promised: dict[str, list[Needs]] = {}
    by_id = {operator.id: operator.needs for operator in operators}
    for assignment in placed:
        promised.setdefault(assignment.node, []).append(by_id[assignment.operator])
    answers = await view.ask_all([node for node in nodes if node not in promised], needs)
    for node in nodes:
        if node in promised:
            answers[node] = await view.ask(node, total([needs, *promised[node]]))
    return answers


def _candidates(ranked: Sequence[tuple[str, float]], answers: dict[str, Answer]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(node=node, distance_ms=distance, accepted=answers[node].accepted, reason=answers[node].reason)
        for node, distance in sorted(ranked, key=lambda pair: (pair[1], pair[0]))
    )


Attempt = Callable[[Partial], Awaitable[list[Assignment]]]
"""Places operators one after another; each attempt's links are measured, so that the next one knows them.

Raises ``no-capacity``, or ``delay-bound`` where an operator has no node within the bound.
"""


async def bounded(
    strategy: str, problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, attempt: Attempt
) -> Placement:
    """Return the first attempt's placement that keeps the bound on delay; without a bound, the first.

    Raises :class:`SbonError` ``delay-bound`` where all of ``settings.attempts`` fail, and any other error of an attempt.
    """
    probes, discoveries = view.probes, view.discoveries
    failed: SbonError | None = None
    for _ in range(1 if problem.bounds.max_delay_ms is None else settings.attempts):
        partial = Partial(problem, view)
        try:
            assignments = await attempt(partial)
        except SbonError as error:
            if error.code != "delay-bound":
                raise
            failed = error
            continue
        trouble = await measured(partial, view, settings) if problem.bounds.max_delay_ms is not None else ""
        assignments = unmeasured(assignments, trouble)
        try:
            discovered = view.discoveries - discoveries
            return finish(strategy, problem, assignments, view, probes, cores=partial.cores(), discoveries=discovered)
        except SbonError as error:
            failed = error
    assert failed is not None
    raise failed


def unmeasured(assignments: list[Assignment], trouble: str) -> list[Assignment]:
    """Return the assignments with the reason why links could not be measured, if there is one."""
    why = f"; not measured: {trouble}" if trouble else ""
    return [msgspec.structs.replace(assignment, reason=f"{assignment.reason}{why}") for assignment in assignments]


async def measured(partial: Partial, view: NetworkView, settings: PlacementSettings) -> str:
    """Measure the links of a placement where that is allowed; return why it could not, or ""."""
    links = partial.links() if settings.measure else []
    try:
        for start in range(0, len(links), BATCH):
            await view.measure(links[start : start + BATCH])
    except SbonError as error:
        return error.message
    return ""
