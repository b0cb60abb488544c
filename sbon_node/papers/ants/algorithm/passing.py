"""Placements that pass through a running task of another query (ANTS, section 3.10): what is left to place of chain and query."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sbon_node.papers.ants.algorithm.chain import Chain
from sbon_node.papers.ants.algorithm.scouting import Site, passed_by
from sbon_node.placement.model.problem import PlacementProblem


def own_part(chain: Chain, sites: Sequence[Site]) -> tuple[Chain, tuple[Site, ...]]:
    """Return the tasks of a placed chain that must be instantiated, as a chain from the running task on, and their sites.

    There are none where the placement passes through a running task that gives the last result.
    """
    passed = passed_by(chain, sites)
    if passed is None:
        return msgspec.structs.replace(chain, running=()), tuple(sites)
    begin, many = passed.task + 1, len(chain.tasks)
    rate_s = chain.flow(begin, many).rate_s
    left = msgspec.structs.replace(chain, source=passed.node, tasks=chain.tasks[begin:], rate_s=rate_s, running=())
    own = (site for site in sites if site.last > begin)
    return left, tuple(
        msgspec.structs.replace(
            site,
            first=max(site.first - begin, 0),
            last=site.last - begin,
            own_ms=site.own_ms - (passed.fed_ms if site.first == 0 else 0.0),
        )
        for site in own
    )


def passing(problem: PlacementProblem, operator: str, node: str) -> PlacementProblem:
    """Return the problem with a running task at ``node`` in place of an operator: pinned, with nothing that feeds it alone."""
    edges = [edge for edge in problem.edges if edge.target != operator]
    operators = [one for one in problem.operators if one.id != operator]
    while idle := {one.id for one in operators} - {edge.source for edge in edges}:
        operators = [one for one in operators if one.id not in idle]
        edges = [edge for edge in edges if edge.target not in idle]
    pinned = {**problem.pinned, operator: node}
    return msgspec.structs.replace(problem, pinned=pinned, operators=tuple(operators), edges=tuple(edges))
