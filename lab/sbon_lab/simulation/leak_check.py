"""The leftovers of a query that has ended or was rejected: each node may keep only its tombstone."""

from sbon_lab.simulation.checks import StuckError
from sbon_lab.simulation.cluster import NodeDiedError, SimulatedCluster
from sbon_lab.simulation.node import SimulatedNode
from sbon_node.hosting.components import HostedOperator, HostedSink
from sbon_node.hosting.machine.machine_resources import Machine
from sbon_node.hosting.moving.departures import StoredDeparture
from sbon_node.hosting.moving.ends import StoredArrival
from sbon_node.ownership.queries import decoded
from sbon_node.ownership.store.query_keys import OPERATOR, QUERY
from sbon_node.placement.model.network_view import NOTHING
from sbon_node.placing import LiveNetworkView
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.operators import Needs
from sbon_protocol.api.states.query_states import LIVE

SETTLE_S = 150.0
"""Seconds after the last repair within which every node must know the end.

Twice the longest pause between two tries, and calls that time out.
"""
LIVENESS_S = 300.0
"""Seconds after the last repair within which every query must end."""
OF_QUERIES = ("link ", "resume ", "report ", "sink ", "forget ", "clean ", "undo ", "move ", "arrive ", "abandon ")
"""Prefixes of the names of tasks that work for a query."""


async def settled(cluster: SimulatedCluster) -> None:
    """Wait until all faults are repaired and nothing is left; raise :class:`StuckError` for leftovers.

    A late call may have reserved capacity that its sender no longer knows of. That lapses ``control.reservation_s`` later.
    """
    whole_since = cluster.loop.time()
    while True:
        now, limit_s = cluster.loop.time(), SETTLE_S + _lapse_s(cluster)  # before the question: it may lapse meanwhile
        if cluster.fault_injector.broken:
            whole_since = now
        elif not (left := await leaks(cluster)):
            return
        elif now > whole_since + limit_s:
            raise StuckError(f"left behind {limit_s:g} s after the end: {'; '.join(left)}")
        await cluster.sleep(0.5)


def check_alive(cluster: SimulatedCluster, state: str) -> None:
    """Raise :class:`StuckError` with ``state`` if the faults have been over for long enough for everything to end."""
    injector = cluster.fault_injector
    over_s = cluster.loop.time() - injector.over_at
    if not injector.broken and over_s > LIVENESS_S:
        raise StuckError(f"{state} {over_s:.0f} s after the last fault")


async def leaks(cluster: SimulatedCluster) -> list[str]:
    """Describe everything that each node still has of any query; a node that is down is listed too."""
    nodes = cluster.nodes.values()
    left = [f"{node.name} is down" for node in nodes if not node.ready]
    left += [f"{node.name}: {leftover}" for node in nodes if node.ready for leftover in _kept(node)]
    return left or await _taken(cluster)


def _kept(node: SimulatedNode) -> list[str]:
    store, outbox = node.daemon.context.store, node.daemon.outbox
    leftovers = [f"operator {operator}" for operator in store.all("operator", HostedOperator)]
    leftovers += [f"sink of {sink}" for sink in store.all("sink", HostedSink)]
    leftovers += [f"move of {operator} away" for operator in store.all("departure", StoredDeparture)]
    leftovers += [f"follower of {operator}" for operator in store.all("arrival", StoredArrival)]
    copies = node.daemon.context.data_dir / "copies"
    leftovers += [f"copy {copy.name}" for copy in (copies.iterdir() if copies.is_dir() else ())]
    leftovers += [f"stream {stream}" for stream in outbox.streams() if not is_source(stream)]
    leftovers += [f"subscription of {subscriber} to {s}" for s in outbox.streams() for subscriber in outbox.link_counts(s).links]
    leftovers += [f"checkpoint {operator}" for operator in node.operators()]
    leftovers += [f"{one} in the engine" for one in (node.engine.running() if node.engine else ())]
    assert node.process is not None
    leftovers += [f"task {task.get_name()}" for task in node.process.tasks() if task.get_name().startswith(OF_QUERIES)]
    kept = {key: one.state for key, one in node.daemon.ownership.acceptors.accepted()}
    leftovers += [f"register of {key}" for key in kept if key.startswith(OPERATOR)]
    for record in (decoded(state) for key, state in kept.items() if key.startswith(QUERY)):
        if record.withdrawn:
            leftovers.append(f"{record.id} is refused, and not forgotten")
        elif record.state in LIVE:
            leftovers.append(f"{record.id} is {record.state}")
        elif not record.cleaned:
            leftovers.append(f"{record.id} is {record.state}, and not cleaned up")
    return leftovers


def _lapse_s(cluster: SimulatedCluster) -> float:
    """Return how long capacity may stay reserved if nothing but such reservations is left; else 0."""
    nodes = cluster.nodes.values()
    if any(not node.ready or _kept(node) for node in nodes):
        return 0.0
    reserving = [node for node in nodes if node.daemon.hosting.operators.promised()]
    return max((cluster.config_of(node).control.reservation_s for node in reserving), default=0.0)


async def _taken(cluster: SimulatedCluster) -> list[str]:
    """Describe the capacity that the nodes still report as taken."""
    asker = next(iter(cluster.nodes))
    view = LiveNetworkView(cluster.nodes[asker].daemon.context)
    try:
        answers = await cluster.answer(asker, view.ask_all(list(cluster.nodes), NOTHING))
    except NodeDiedError:
        return [f"{asker} has died"]
    reasons = []
    for name, answer in answers.items():
        config = cluster.config_of(cluster.nodes[name])
        capacity = Machine(config.control).capacity(config.engine.max_operators)
        if not answer.accepted:
            reasons.append(f"{name} answers: {answer.reason}")
        elif answer.free != Needs(
            cores=capacity.cores, memory_mb=capacity.memory_mb, bandwidth_bytes_s=capacity.bandwidth_bytes_s
        ):
            reasons.append(f"{name} has {answer.free} free of {capacity}")
    return reasons
