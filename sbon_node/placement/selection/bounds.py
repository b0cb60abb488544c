"""Check of a strategy's placement against the query's bounds, which not every strategy considers."""

from collections.abc import Mapping

import msgspec

from sbon_node.placement.model.network_view import Answer, NetworkView
from sbon_node.placement.model.objective import longest_delay_ms, network_usage, processing_ms
from sbon_node.placement.model.problem import Operator, PlacementProblem, has_capacity, total
from sbon_node.placement.selection.mapping import delay_bound, legs, measured
from sbon_node.placement.selection.partial import Partial
from sbon_node.placement.settings import PlacementSettings
from sbon_node.placement.strategies.registry import Strategy
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.placement import Placement
from sbon_protocol.api.strategies import Bounds
from sbon_protocol.errors import SbonError


async def place(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, strategy: Strategy) -> Placement:
    """Place the problem by the strategy, and check the bounds.

    If the delay is bounded, the placement's links are measured, and the measurements count. If a throughput is required, its
    hosts are asked for the bandwidth they have left.

    Raises :class:`SbonError`: the strategy's errors, ``delay-bound`` or ``throughput-bound``, with the amount missing.
    """
    before = view.probes
    try:
        placement = await strategy(problem, view, settings)
    except SbonError as error:
        if error.code == "no-capacity" and problem.bounds.min_throughput_bytes_s is not None:
            raise await _slow(problem, view, error) from error
        raise
    if problem.bounds == Bounds():
        return placement
    hosts, partial = placement.hosts(), Partial(problem, view)
    for operator, node in hosts.items():
        partial.place(operator, node)
    partial.know(await _answers_of_hosts(problem, view, hosts))
    if problem.bounds.max_delay_ms is not None:
        await measured(partial, view, settings)  # at the limit on measurements, known latencies decide
    cores = partial.cores()
    delay_ms = longest_delay_ms(problem, hosts, view.latency_ms, processing_ms(problem, hosts, cores))
    bound_ms = problem.bounds.max_delay_ms
    if bound_ms is not None and delay_ms > bound_ms + 1e-6:
        raise delay_bound(bound_ms, delay_ms, legs(problem, hosts, view, cores))
    usage = network_usage(problem, hosts, view.latency_ms)
    return msgspec.structs.replace(placement, usage=usage, delay_ms=delay_ms, probes=view.probes - before)


async def _answers_of_hosts(problem: PlacementProblem, view: NetworkView, hosts: Mapping[str, str]) -> dict[str, Answer]:
    """Return the answers of hosts with capacity for all their operators; the reservation passes over unreachable or full ones."""
    by_id = {operator.id: operator for operator in problem.operators}
    together: dict[str, list[Operator]] = {}
    for operator, node in hosts.items():
        together.setdefault(node, []).append(by_id[operator])
    found = {}
    for node, operators in together.items():
        needs = total([operator.needs for operator in operators])
        answer = await view.ask(node, needs)
        lacking = needs.bandwidth_bytes_s - answer.capacity.bandwidth_bytes_s
        bounded = problem.bounds.min_throughput_bytes_s is not None
        if answer.accepted:
            found[node] = answer
        elif bounded and lacking > 0 and has_capacity([_modest(needs)], answer.capacity):
            names, spare = ", ".join(operator.id for operator in operators), answer.capacity.bandwidth_bytes_s
            message = f"{node} has {spare:g} bytes/s to spare for {names}, {lacking:g} less than needed"
            hint = "ask for less, or try another strategy: hybrid and optimal look for hosts with capacity"
            raise SbonError("throughput-bound", message, where="min_throughput_bytes_s", hint=hint)
    return found


async def _slow(problem: PlacementProblem, view: NetworkView, refused: SbonError) -> SbonError:
    """Return the error if no node has capacity: ``throughput-bound`` where one would take the operator with less bandwidth."""
    operator = next((operator for operator in problem.operators if operator.id == refused.where), None)
    least = problem.bounds.min_throughput_bytes_s
    if operator is None or least is None:
        return refused
    answers = await view.ask_all([node for node in view.nodes() if node not in operator.refused], _modest(operator.needs))
    left = {node: answer.capacity.bandwidth_bytes_s for node, answer in answers.items() if answer.accepted}
    if not left:
        return refused
    best = min(left, key=lambda node: (-left[node], node))
    if left[best] >= operator.needs.bandwidth_bytes_s:
        return refused
    lacking = operator.needs.bandwidth_bytes_s - left[best]
    message = (
        f"no node can send {least:g} bytes/s for {operator.id}: {best} has most left, {left[best]:g}, {lacking:g} too little"
    )
    hint, details = "ask for less, stop queries, or add nodes", refused.details
    return SbonError("throughput-bound", message, where="min_throughput_bytes_s", hint=hint, details=details)


def _modest(needs: Needs) -> Needs:
    """Return the needs without bandwidth."""
    return Needs(cores=needs.cores, memory_mb=needs.memory_mb)
