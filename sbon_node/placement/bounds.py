"""A strategy's placement is taken only where it keeps to the query's bounds: not every strategy looks at them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sbon_node.engine.interface import Needs
from sbon_node.errors import SbonError
from sbon_node.placement.mapping import delay_bound, legs
from sbon_node.placement.network_view import Answer, NetworkView
from sbon_node.placement.objective import longest_delay_ms, network_usage, processing_ms
from sbon_node.placement.partial import Partial
from sbon_node.placement.problem import Bounds, Operator, Placement, PlacementProblem, has_room, total
from sbon_node.placement.registry import strategy_named
from sbon_node.placement.sequential import measured
from sbon_node.placement.settings import PlacementSettings


async def place(problem: PlacementProblem, view: NetworkView, settings: PlacementSettings, strategy: str) -> Placement:
    """By the strategy of that name. Where the delay is bounded, the placement's links are measured and count as they are; where a
    throughput is asked for, its hosts are asked what they have left to send.

    Raises :class:`SbonError`: what the strategy raises, ``delay-bound`` or ``throughput-bound``, with how much is missing.
    """
    before = view.questions
    try:
        placement = await strategy_named(strategy)(problem, view, settings)
    except SbonError as error:
        if error.code == "no-room" and problem.bounds.min_throughput_bytes_s is not None:
            raise await _slow(problem, view, error) from error
        raise
    if problem.bounds == Bounds():
        return placement
    hosts, partial = placement.hosts(), Partial(problem, view)
    for operator, node in hosts.items():
        partial.place(operator, node)
    partial.know(await _asked(problem, view, hosts))
    if problem.bounds.max_delay_ms is not None:
        await measured(partial, view, settings)  # what is known decides where no more may be measured now
    cores = partial.cores()
    delay_ms = longest_delay_ms(problem, hosts, view.latency_ms, processing_ms(problem, hosts, cores))
    bound_ms = problem.bounds.max_delay_ms
    if bound_ms is not None and delay_ms > bound_ms + 1e-6:
        raise delay_bound(bound_ms, delay_ms, legs(problem, hosts, view, cores))
    return msgspec.structs.replace(
        placement,
        usage=network_usage(problem, hosts, view.latency_ms),
        delay_ms=delay_ms,
        questions=view.questions - before,
    )


async def _asked(problem: PlacementProblem, view: NetworkView, hosts: Mapping[str, str]) -> dict[str, Answer]:
    """What each host says that has room for all of the query's operators there, and can send enough for them. Who lacks other
    room, or is out of reach, is for those who reserve to pass over."""
    by_id = {operator.id: operator for operator in problem.operators}
    together: dict[str, list[Operator]] = {}
    for operator, node in hosts.items():
        together.setdefault(node, []).append(by_id[operator])
    found = {}
    for node, operators in together.items():
        needs = total([operator.needs for operator in operators])
        answer = await view.ask(node, needs)
        lacking = needs.bandwidth_bytes_s - answer.room.bandwidth_bytes_s
        if answer.accepted:
            found[node] = answer
        elif problem.bounds.min_throughput_bytes_s is not None and lacking > 0 and has_room([_modest(needs)], answer.room):
            names = ", ".join(operator.id for operator in operators)
            raise SbonError(
                "throughput-bound",
                f"{node} has {answer.room.bandwidth_bytes_s:g} bytes/s left to send for {names}, {lacking:g} less than needed",
                where="min_throughput_bytes_s",
                hint="ask for less, or try another strategy: hybrid and optimal look for hosts with room",
            )
    return found


async def _slow(problem: PlacementProblem, view: NetworkView, refused: SbonError) -> SbonError:
    """What to say where nobody has room: that the throughput asked for is why, where some would take the operator with less."""
    operator = next((one for one in problem.operators if one.id == refused.where), None)
    least = problem.bounds.min_throughput_bytes_s
    if operator is None or least is None:
        return refused
    answers = await view.ask_all([node for node in view.nodes() if node not in operator.refused], _modest(operator.needs))
    left = {node: answer.room.bandwidth_bytes_s for node, answer in answers.items() if answer.accepted}
    if not left:
        return refused
    best = min(left, key=lambda node: (-left[node], node))
    if left[best] >= operator.needs.bandwidth_bytes_s:
        return refused
    lacking = operator.needs.bandwidth_bytes_s - left[best]
    return SbonError(
        "throughput-bound",
        f"no node can send {least:g} bytes/s for {operator.id}: {best} has most left, {left[best]:g}, {lacking:g} too little",
        where="min_throughput_bytes_s",
        hint="ask for less, stop queries, or add nodes",
        details=refused.details,
    )


def _modest(needs: Needs) -> Needs:
    """The same, but nothing to send."""
    return Needs(cores=needs.cores, memory_mb=needs.memory_mb)
