"""Conversion between ants in datagrams and the structures that their steps use."""

from collections.abc import Mapping, Sequence

import numpy as np

from sbon_node.model.servers import LEAST_SPEED, MOST_SPEED
from sbon_node.papers.ants.algorithm.cell import ServerLoad
from sbon_node.papers.ants.algorithm.chain import Chain, Running, Task
from sbon_node.papers.ants.algorithm.scouting import Site
from sbon_node.placement.model.queueing import Floats, Service, Traffic, waiting_ms
from sbon_protocol.api.operators import Needs
from sbon_protocol.papers.ants import MAX_REFUSED, MAX_RUNNING, MAX_TASKS, AntChain, AntRunning, AntSite, AntTask, ServerState

MOST = 1e15
"""Largest number on the wire."""
MOST_MS, MOST_RATIO = 1e9, 1e6
"""The largest time and ratio of a task, so that no product of ten of them overflows."""


def state_of(load: ServerLoad) -> ServerState:
    """Return the state of a server for the wire, within the bounds of its numbers."""
    cores, memory_mb, bandwidth_bytes_s = (MOST, MOST, MOST) if load.free is None else load.free.amounts
    sums = {name: _bounded(value) for name, value in load.traffic._asdict().items()}
    free = {"cores": cores, "memory_mb": memory_mb, "bandwidth_bytes_s": bandwidth_bytes_s}
    return ServerState(speed=load.speed, **sums, **{name: _bounded(value) for name, value in free.items()})


def load_of(node: str, state: ServerState) -> ServerLoad:
    """Return the load of the server of ``node``, with the waiting time that follows from its state."""
    traffic = Traffic(*(np.asarray(getattr(state, name)) for name in Traffic._fields))
    free = Needs(cores=state.cores, memory_mb=state.memory_mb, bandwidth_bytes_s=state.bandwidth_bytes_s)
    return ServerLoad(node, min(max(state.speed, LEAST_SPEED), MOST_SPEED), traffic, float(waiting_ms(traffic)), free)


def on_wire(chain: Chain) -> AntChain:
    """Return at most the first ``MAX_TASKS`` tasks of a chain; the nodes that refused one of them may host none."""
    refused = sorted(set().union(*(task.refused for task in chain.tasks)))
    return AntChain(
        source=chain.source,
        destination=chain.destination,
        rate_s=_bounded(chain.rate_s),
        arrival_scv=_bounded(chain.arrival_scv),
        tasks=tuple(_task_on_wire(task) for task in chain.tasks[:MAX_TASKS]),
        refused=tuple(refused[:MAX_REFUSED]),
        query=chain.query,
        running=tuple(AntRunning(one.task, one.node, _bounded(one.fed_ms)) for one in chain.running[:MAX_RUNNING]),
    )


def chain_of(chain: AntChain, name: str) -> Chain:
    """Return the chain, whose operators are named by their numbers."""
    refused = frozenset(chain.refused)
    tasks = []
    for number, task in enumerate(chain.tasks):
        service = Service(mean_ms=task.mean_ms, scv=task.scv)
        tasks.append(Task(operator=str(number), service=service, batch=task.batch, needs=needs_of(task), refused=refused))
    return Chain(
        id=name,
        source=chain.source,
        destination=chain.destination,
        tasks=tuple(tasks),
        rate_s=chain.rate_s,
        arrival_scv=chain.arrival_scv,
        query=chain.query,
        running=tuple(Running(one.task, one.node, one.fed_ms) for one in chain.running),
    )


def needs_of(task: AntTask) -> Needs:
    """Return the resources that a task needs."""
    return Needs(cores=task.cores, memory_mb=task.memory_mb, bandwidth_bytes_s=task.bandwidth_bytes_s)


def site_of(site: AntSite) -> Site:
    """Return a host of consecutive tasks of a chain, without the state of its server."""
    return Site(node=site.node, first=site.first, last=site.last, own_ms=site.own_ms, others_ms=site.others_ms)


def sites_on_wire(sites: Sequence[Site], states: Mapping[str, ServerState]) -> tuple[AntSite, ...]:
    """Return the sites with the states of their hosts, as far as known."""

    def wired(site: Site) -> AntSite:
        own_ms, others_ms = _bounded(site.own_ms), _bounded(max(0.0, site.others_ms))
        return AntSite(site.node, site.first, site.last, own_ms, others_ms, states.get(site.node))

    return tuple(map(wired, sites))


def are_whole(sites: Sequence[AntSite], tasks: int, *, all_placed: bool) -> bool:
    """Return whether sites hold the first tasks of a chain in order, each node once; all tasks where ``all_placed``."""
    placed = 0
    for site in sites:
        if site.first != placed or site.last <= site.first:
            return False
        placed = site.last
    distinct = len({site.node for site in sites}) == len(sites)
    return distinct and (placed == tasks if all_placed else placed <= tasks)


def _task_on_wire(task: Task) -> AntTask:
    cores, memory_mb, bandwidth_bytes_s = task.needs.amounts
    return AntTask(
        mean_ms=min(task.service.mean_ms, MOST_MS),
        scv=min(task.service.scv, MOST_RATIO),
        batch=min(task.batch, MOST_RATIO),
        cores=_bounded(cores),
        memory_mb=_bounded(memory_mb),
        bandwidth_bytes_s=_bounded(bandwidth_bytes_s),
    )


def _bounded(value: float | Floats) -> float:
    return min(float(value), MOST)
