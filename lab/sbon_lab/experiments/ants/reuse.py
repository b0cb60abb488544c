"""Reuse of tasks by ants (ANTS, section 3.10): overlapping queries placed in sequence, with and without it.

Queries begin with the first tasks of a few templates and go on with tasks of their own. The paper has no figure for reuse.
"""

import itertools
from typing import NamedTuple

import msgspec
import numpy as np

from sbon_lab.experiments.ants.quality import SETTINGS, Sample, Samples
from sbon_lab.experiments.ants.world import World, chain_of, chain_query
from sbon_lab.experiments.harness.experiment import Notify
from sbon_lab.experiments.harness.network import Network
from sbon_lab.experiments.harness.network_model import number_of
from sbon_lab.experiments.harness.trials import Dump
from sbon_node.papers.ants.algorithm.chain import Chain, Running
from sbon_node.papers.ants.algorithm.scouting import rows_of
from sbon_protocol.papers.ants import MAX_RUNNING

NEVER, WEIGHED, LATE, ALWAYS = "own tasks alone", "weighed", "weighed with the way up to it", "the nearest always"
KINDS = (NEVER, WEIGHED, LATE, ALWAYS)
"""Without reuse; by scouts, as for a query without an objective, and as for one with the objective latency; without a choice."""
OVERLAP = 5
"""Queries for each template, on average."""
MOST_OWN = 3


class Overlapping(NamedTuple):
    """A query whose first ``common`` tasks are those of a template."""

    chain: Chain
    template: int
    common: int


class Deployed(NamedTuple):
    """A placed query: it reads task ``passed`` of the query ``feeder``, or its producer where ``passed`` is -1."""

    chain: Chain
    hosts: list[str]
    passed: int
    feeder: int


def overlapping(queries: int, nodes: int, rng: np.random.Generator) -> list[Overlapping]:
    """Return queries that share the first tasks of templates, each with at most ``MOST_OWN`` others and its own consumer."""
    templates = [chain_of(chain_query(number, nodes, rng)) for number in range(max(1, queries // OVERLAP))]
    found = []
    for number in range(queries):
        template = int(rng.integers(len(templates)))
        begins, own = templates[template], chain_of(chain_query(number, nodes, rng))
        common, more = int(rng.integers(1, len(begins.tasks) + 1)), int(rng.integers(MOST_OWN + 1))
        tasks = (*begins.tasks[:common], *own.tasks[:more])
        chain = msgspec.structs.replace(
            begins,
            id=f"q{number}",
            destination=own.destination if own.destination != begins.source else begins.destination,
            tasks=tuple(msgspec.structs.replace(task, operator=f"o{at}") for at, task in enumerate(tasks)),
        )
        found.append(Overlapping(chain, template, common))
    return found


class Sharing:
    """Overlapping queries on a network's servers, placed one after another by one kind of reuse."""

    def __init__(self, network: Network, seed: int, kind: str) -> None:
        self.world, self._kind = World(network, seed, SETTINGS), kind
        self._network = self.world.network
        self.deployed: dict[int, Deployed] = {}
        self._templates: dict[int, list[tuple[int, int]]] = {}
        """Placed queries of each template, with the number of their common tasks."""

    def place(self, number: int, query: Overlapping) -> bool:
        """Place a query; return whether it has found room."""
        chain, running = query.chain, self._running(query) if self._kind != NEVER else []
        nearest = min(running, key=lambda one: (-one[0].task, self._ms(one[0].node, chain.destination)), default=None)
        if self._kind == ALWAYS and nearest is not None:
            placed = self._behind(query, *nearest)
        else:
            placed = self._weighed(query, dict(running))
        if placed is None:
            return False
        self.deployed[number] = placed
        self._templates.setdefault(query.template, []).append((number, query.common))
        return True

    def _running(self, query: Overlapping) -> list[tuple[Running, int]]:
        """Return the tasks that the query may pass through, of each node the furthest, and the queries that run them."""
        found: dict[str, tuple[Running, int]] = {}
        for number, common in self._templates.get(query.template, ()):
            deployed = self.deployed[number]
            for task in range(deployed.passed + 1, min(common, query.common)):
                node = deployed.hosts[task]
                if node not in found or found[node][0].task < task:
                    fed_ms = self.upto_ms(number, task) if self._kind == LATE else 0.0
                    found[node] = Running(task, node, fed_ms), number
        order = sorted(found.values(), key=lambda one: (-one[0].task, self._ms(one[0].node, query.chain.destination)))
        return order[:MAX_RUNNING]

    def _weighed(self, query: Overlapping, running: dict[Running, int]) -> Deployed | None:
        """Let scouts choose."""
        settings, chain = self.world.settings, msgspec.structs.replace(query.chain, running=tuple(running))
        reports = self.world.colony.place(chain, settings.routing_ants, settings.scouting_ants, settings.ant_tries)
        if not reports:
            return None
        hosts = [reports[0].hosts()[task.operator] for task in chain.tasks]
        self.world.deploy(chain, hosts)
        node, first, last = rows_of(hosts)[0]
        passed = chain.passed(node, first, last)
        return Deployed(chain, hosts, -1, -1) if passed is None else Deployed(chain, hosts, passed.task, running[passed])

    def _behind(self, query: Overlapping, passed: Running, feeder: int) -> Deployed | None:
        """Place the tasks behind a running one; none may be left."""
        chain, begin = query.chain, passed.task + 1
        hosts = [passed.node] * begin
        if begin < len(chain.tasks):
            rate_s = chain.flow(begin, len(chain.tasks)).rate_s
            rest = msgspec.structs.replace(chain, source=passed.node, tasks=chain.tasks[begin:], rate_s=rate_s)
            settings = self.world.settings
            reports = self.world.colony.place(rest, settings.routing_ants, settings.scouting_ants, settings.ant_tries)
            if not reports:
                return None
            own = [reports[0].hosts()[task.operator] for task in rest.tasks]
            self.world.deploy(rest, own)
            hosts += own
        return Deployed(chain, hosts, passed.task, feeder)

    # -- what it comes to ----------------------------------------------------------------------------------------------

    def latency_ms(self, number: int) -> float:
        """Return the latency from the producer to the query's consumer, over the tasks of others that it reads."""
        deployed = self.deployed[number]
        last = len(deployed.chain.tasks) - 1
        return self.upto_ms(number, last) + self._ms(deployed.hosts[last], deployed.chain.destination)

    def upto_ms(self, number: int, task: int) -> float:
        """Return the latency from the producer to the output of a task."""
        deployed, cells = self.deployed[number], self.world.colony.cells
        if task <= deployed.passed:
            return self.upto_ms(deployed.feeder, task)
        chain, begin = deployed.chain, deployed.passed + 1
        node_before = deployed.hosts[deployed.passed] if begin else chain.source
        total = self.upto_ms(deployed.feeder, deployed.passed) if begin else 0.0
        for node, first, last in rows_of(deployed.hosts[begin : task + 1]):
            served_ms = chain.flow(begin + first, begin + last).service.mean_ms / cells[node].speed
            total += self._ms(node_before, node) + cells[node].waiting_ms + served_ms
            node_before = node
        return total

    def in_transit(self, number: int) -> float:
        """Return the messages in transit on the query's own links."""
        deployed = self.deployed[number]
        chain, begin = deployed.chain, deployed.passed + 1
        stops = [deployed.hosts[begin - 1] if begin else chain.source, *deployed.hosts[begin:], chain.destination]
        links = enumerate(itertools.pairwise(stops), begin)
        return sum(_rate_s(chain, task) * self._ms(*link) / 1e3 for task, link in links)

    def busy_cores(self) -> float:
        """Return the cores of standard machines that all tasks keep busy."""
        return sum(float(cell.traffic.load) * cell.speed for cell in self.world.colony.cells.values())

    def _ms(self, one: str, other: str) -> float:
        return float(self._network.latency_ms[number_of(one), number_of(other)])


def _rate_s(chain: Chain, task: int) -> float:
    """Return the rate of messages into a task; of the last ones, out of all tasks."""
    return chain.rate_s * float(np.prod([one.batch for one in chain.tasks[:task]]))


def by_reuse(network: Network, seed: int, queries: int, lines: Dump, notify: Notify) -> Samples:
    """Measure overlapping queries in sequence, by kind of reuse."""
    samples: Samples = {}
    each = overlapping(queries, network.nodes, np.random.default_rng((seed, 68)))
    for kind in KINDS:
        sharing, failed = Sharing(network, seed, kind), 0
        for number, query in enumerate(each):
            notify(f"{kind}, query {number + 1}")
            failed += not sharing.place(number, query)
        samples["reuse", kind, queries] = Sample(
            float(np.mean([sharing.latency_ms(number) for number in sharing.deployed])),
            failed=failed / queries,
            queries=queries,
            reused=sum(one.passed >= 0 for one in sharing.deployed.values()) / queries,
            busy_cores=sharing.busy_cores(),
            in_transit=sum(sharing.in_transit(number) for number in sharing.deployed),
        )
    return samples
