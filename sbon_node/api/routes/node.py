"""Routes about the node itself and the members it knows."""

from __future__ import annotations

from sbon_node.api.routes.bodies import JoinBody, LeaveQuery, MachineUsageQuery, MembersQuery
from sbon_node.api.routes.route import ApiCall, Plain, Route
from sbon_node.net.transport import Address
from sbon_protocol.api.nodes import Joined, MachineUsagePoint, MemberInfo, NodeStatus, PairInfo, RttRequest


async def status(call: Plain) -> NodeStatus:
    """The node call: engine, operators, coordinate, counters."""
    return call.node.operations.status()


async def usage(call: ApiCall[MachineUsageQuery, None]) -> list[MachineUsagePoint]:
    """Processor and memory of the node asked and of its engine: the newest points, the oldest first."""
    return call.node.operations.usage.points(call.query.after_ms)


async def members(call: ApiCall[MembersQuery, None]) -> list[MemberInfo]:
    """Every node as the one asked sees it, by name; or by distance from one of them."""
    return call.node.operations.distances.members(call.query.near, call.query.within_ms)


async def rtt(call: ApiCall[None, RttRequest]) -> list[PairInfo]:
    """Round-trip times between nodes, measured where that is wanted."""
    return await call.node.operations.distances.rtt(call.body)


async def join(call: ApiCall[None, JoinBody]) -> Joined:
    """Joins the cluster of the nodes at these addresses."""
    return Joined(
        members=await call.node.membership.join([Address.parse(text, field="addresses") for text in call.body.addresses])
    )


async def leave(call: ApiCall[LeaveQuery, None]) -> None:
    """Leaves for good; then the node stops. Refused with ``node-in-use`` while queries need it, unless forced."""
    await call.node.adaptation.leaving.leave_and_stop(force=call.query.force)


ROUTES = (
    Route("GET", "/v1/status", status),
    Route("GET", "/v1/usage", usage),
    Route("GET", "/v1/members", members, refusals=(404,)),
    Route("POST", "/v1/rtt", rtt, refusals=(404,)),
    Route("POST", "/v1/join", join, uncut=True),
    Route("POST", "/v1/leave", leave, uncut=True, refusals=(409,)),
)
