"""Routes about the node itself and the members it knows."""

from __future__ import annotations

from sbon_node.api.routes.bodies import JoinBody, Joined, LeaveQuery, MachineUsageQuery, MembersQuery
from sbon_node.api.routes.route import Asked, Plain, Route
from sbon_node.model.nodes import MachineUsagePoint, MemberInfo, NodeStatus, PairInfo, RttRequest


async def status(asked: Plain) -> NodeStatus:
    """The node asked: engine, operators, coordinate, counters."""
    return asked.interface.status()


async def usage(asked: Asked[MachineUsageQuery, None]) -> list[MachineUsagePoint]:
    """Processor and memory of the node asked and of its engine: the newest points, the oldest first."""
    return asked.interface.usage(asked.query.after_ms)


async def members(asked: Asked[MembersQuery, None]) -> list[MemberInfo]:
    """Every node as the one asked sees it, by name; or by distance from one of them."""
    return asked.interface.members(asked.query.near, asked.query.within_ms)


async def rtt(asked: Asked[None, RttRequest]) -> list[PairInfo]:
    """Round-trip times between nodes, measured where that is wanted."""
    return await asked.interface.rtt(asked.body)


async def join(asked: Asked[None, JoinBody]) -> Joined:
    """Joins the cluster of the nodes at these addresses."""
    return Joined(members=await asked.interface.join(asked.body.addresses))


async def leave(asked: Asked[LeaveQuery, None]) -> None:
    """Leaves for good; then the node stops. Refused with ``node-in-use`` while queries need it, unless forced."""
    await asked.interface.leave(force=asked.query.force)


ROUTES = (
    Route("GET", "/v1/status", status),
    Route("GET", "/v1/usage", usage),
    Route("GET", "/v1/members", members, refusals=(404,)),
    Route("POST", "/v1/rtt", rtt, refusals=(404,)),
    Route("POST", "/v1/join", join, uncut=True),
    Route("POST", "/v1/leave", leave, uncut=True, refusals=(409,)),
)
