"""What a query that is over, or was refused, has left behind: on no node there may be anything of it but its tombstone."""

from __future__ import annotations

from sbon_node.control.operators import HostedOperator
from sbon_node.control.records import LIVE, QueryRecord
from sbon_node.control.sinks import HostedSink
from sbon_node.control.view import LiveNetworkView
from sbon_node.engine.interface import Needs
from sbon_node.placement.network_view import NOTHING
from sbon_node.query.catalog import is_source
from sbon_node.simulation.checks import CheckFailedError
from sbon_node.simulation.cluster import IdleMachine, NodeDiedError, SimulatedCluster
from sbon_node.simulation.node import SimulatedNode

SETTLE_S = 150.0
"""How long after the last fault was mended every node must have been told: twice the longest pause between two tries, and calls
that time out."""
OF_QUERIES = ("link ", "resume ", "report ", "sink ", "forget ", "clean ", "undo ")
"""How the names of tasks begin that work for a query."""


async def settled(cluster: SimulatedCluster) -> None:
    """Waits until all is mended, and then until nothing is left; raises :class:`CheckFailedError` for what stays."""
    whole_since = cluster.loop.time()
    while cluster.strikes.broken or (left := await left_behind(cluster)):
        now = cluster.loop.time()
        if cluster.strikes.broken:
            whole_since = now
        elif now > whole_since + SETTLE_S:
            raise CheckFailedError(f"left behind {SETTLE_S:g} s after the end: {'; '.join(left)}")
        await cluster.sleep(0.5)


async def left_behind(cluster: SimulatedCluster) -> list[str]:
    """What every node still has of any query, in words; a node that is down counts as well."""
    nodes = cluster.nodes.values()
    left = [f"{node.name} is down" for node in nodes if not node.ready]
    left += [f"{node.name}: {what}" for node in nodes if node.ready for what in _kept(node)]
    return left or await _taken(cluster)


def _kept(node: SimulatedNode) -> list[str]:
    store, outbox = node.daemon.context.store, node.daemon.outbox
    kept = [f"operator {one}" for one in store.all("operator", HostedOperator)]
    kept += [f"sink of {one}" for one in store.all("sink", HostedSink)]
    kept += [f"stream {one}" for one in outbox.streams() if not is_source(one)]
    kept += [f"subscription of {one} to {s}" for s in outbox.streams() for one in outbox.link_counts(s).links]
    kept += [f"checkpoint {one}" for one in node.operators()]
    kept += [f"{one} in the engine" for one in (node.engine.running() if node.engine else ())]
    assert node.process is not None
    kept += [f"task {task.get_name()}" for task in node.process.tasks() if task.get_name().startswith(OF_QUERIES)]
    for record in store.all("query", QueryRecord).values():
        if record.state in LIVE:
            kept.append(f"{record.id} is {record.state}")
        elif not record.cleaned:
            kept.append(f"{record.id} is {record.state}, and not cleaned up")
    return kept


async def _taken(cluster: SimulatedCluster) -> list[str]:
    """Room that is not free again, as the nodes themselves say."""
    asker = next(iter(cluster.nodes))
    view = LiveNetworkView(cluster.nodes[asker].daemon.context)
    try:
        answers = await cluster.answer(asker, view.ask_all(list(cluster.nodes), NOTHING))
    except NodeDiedError:
        return [f"{asker} has died"]
    taken = []
    for name, answer in answers.items():
        config = cluster.config_of(cluster.nodes[name])
        whole = IdleMachine(config.control).capacity(config.engine.max_operators)
        if not answer.accepted:
            taken.append(f"{name} answers: {answer.reason}")
        elif answer.free != Needs(cores=whole.cores, memory_mb=whole.memory_mb, bandwidth_bytes_s=whole.bandwidth_bytes_s):
            taken.append(f"{name} has {answer.free} free of {whole}")
    return taken
