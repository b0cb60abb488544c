"""Latency of messages through a server: the queueing model of ANTS (section 3.6, equations 3 to 10).

A server has one queue. Its input is a set of *flows*. A message from another node passes through all consecutive tasks of its
query on the server; then the server takes the next message. The flows of a server are aggregated to a single stream (Whitt, The
Queueing Network Analyzer, 1983), whose wait is that of a G/G/1 queue. Equation 9 as printed is not Marchal's formula but the
formula mostly credited to Allen and Cunneen; this module uses it as printed. For Poisson arrivals it is exact (Pollaczek,
Khinchine). Compared with simulated queues, the latency of a flow is within 10 % at loads up to 0.9, as long as the squared
coefficient of variation of the flows' arrivals is between 0.8 and 2. For several flows that are more regular it is too high,
because equation 6 takes their sum for more irregular than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.problem import PlacementProblem, in_order
from sbon_node.placement.model.problem import Service as Service

Floats = NDArray[np.float64]

MAX_LOAD = 0.95
"""A server with a greater load than this is overloaded."""
BUSIEST = 0.8
"""Highest load assumed of a machine of which only the load average is known; it shares its time, so takes other work as well."""
OVERLOADED_MS = 1e6
"""Waiting time at an overloaded server for each unit of load; less overload is better."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that enter a server.

    ``rate_s`` is their number per second, and ``service`` the service time of a message at speed 1 with all tasks that follow
    there. ``arrival_scv`` is the squared coefficient of variation of the times between messages, 1 for a Poisson process.
    """

    rate_s: float
    service: Service
    arrival_scv: float = 1.0


def spread(batch: float) -> float:
    """Return the variance of the number of output messages for one input message.

    ``batch`` is their mean; the number is one of the two whole numbers nearest to it.
    """
    fraction = batch % 1.0
    return fraction * (1.0 - fraction)


def service_of(tasks: Sequence[tuple[Service, float]]) -> Service:
    """Return the service time of consecutive tasks, each with its batch size B.

    B is the number of output messages for one input message. The mean is equation 3, S_f = sum S_i prod B_j; the paper leaves the
    variance open.
    """
    mean, variance = 0.0, 0.0
    for service, batch in reversed(tasks):
        variance = service.scv * service.mean_ms**2 + batch * variance + spread(batch) * mean**2
        mean = service.mean_ms + batch * mean
    square = mean**2  # zero for a tiny mean, too
    return Service(mean_ms=mean, scv=variance / square if square else 1.0)


class Traffic(NamedTuple):
    """The flows of a server, as the sums that equations 4 to 8 need.

    Arrays have one shape: [] for one server, or that of many servers. The sum of two traffics is the traffic of all their flows.
    """

    flows: Floats
    """Number of flows."""
    rate_s: Floats
    """lambda: messages per second."""
    load: Floats
    """rho: sum of lambda_f / mu_f."""
    service_ms: Floats
    """Sum of S_f."""
    squares: Floats
    """Sum of lambda_f (c_sf^2 + 1) / mu_f^2; seconds."""
    rate_squares: Floats
    """Sum of lambda_f^2."""
    burstiness: Floats
    """Sum of c_af^2 lambda_f."""

    def plus(self, other: Traffic) -> Traffic:
        return Traffic(*(one + two for one, two in zip(self, other, strict=True)))

    def at(self, index: object) -> Traffic:
        """Return the traffic of some of the servers."""
        return Traffic(*(values[index] for values in self))  # type: ignore[call-overload]


def no_traffic(*shape: int) -> Traffic:
    return Traffic(*(np.zeros(shape) for _ in Traffic._fields))


def traffic_of(flow: Flow, speed: Floats | float = 1.0) -> Traffic:
    """Return the traffic of one flow at servers of ``speed`` [..]."""
    return traffic(flow.rate_s, flow.service.mean_ms / speed, flow.service.scv, flow.arrival_scv)


def traffic(
    rate_s: Floats | float, service_ms: Floats | float, service_scv: Floats | float, arrival_scv: Floats | float = 1.0
) -> Traffic:
    """Return the traffic of one flow for each server; all arguments broadcast to one shape."""
    arguments = (np.asarray(x, dtype=float) for x in (rate_s, service_ms, service_scv, arrival_scv))
    rate, ms, scv, arrivals = np.broadcast_arrays(*arguments)
    return Traffic(
        flows=np.ones(rate.shape),
        rate_s=rate,
        load=rate * ms / 1e3,
        service_ms=ms,
        squares=rate * (ms / 1e3) ** 2 * (scv + 1.0),
        rate_squares=rate**2,
        burstiness=rate * arrivals,
    )


def waiting_ms(traffic: Traffic) -> Floats:
    """Return Q, the wait in the queue (equations 4 to 9) in ms; ``OVERLOADED_MS`` x the load where that exceeds ``MAX_LOAD``."""
    rate, load = np.maximum(traffic.rate_s, 1e-12), np.minimum(traffic.load, MAX_LOAD)
    mean_s = traffic.load / rate
    service_scv = np.maximum(traffic.squares / rate / np.maximum(mean_s, 1e-12) ** 2 - 1.0, 0.0)
    streams = rate**2 / np.maximum(traffic.rate_squares, 1e-24)
    weight = 1.0 / (1.0 + 4.0 * (1.0 - load) ** 2 * np.maximum(streams - 1.0, 0.0))
    arrival_scv = (1.0 - weight) + weight * traffic.burstiness / rate
    waited = 1e3 * load / (1.0 - load) * (arrival_scv + service_scv) / 2.0 * mean_s
    wait_ms: Floats = np.where(traffic.load > MAX_LOAD, OVERLOADED_MS * traffic.load, waited)
    return wait_ms


def latency_ms(flow: Flow, speed: Floats | float, others: Traffic) -> Floats:
    """Return L_f = Q_f + S_f (equation 10) of ``flow`` at servers [..] that also serve ``others``."""
    latency: Floats = waiting_ms(others.plus(traffic_of(flow, speed))) + flow.service.mean_ms / speed
    return latency


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A node in the queueing model: its flows, and its speed relative to speed 1."""

    speed: float = 1.0
    flows: tuple[Flow, ...] = ()

    def traffic(self) -> Traffic:
        traffic = no_traffic()
        for flow in self.flows:
            traffic = traffic.plus(traffic_of(flow, self.speed))
        return traffic


def side_by_side(servers: Sequence[Server]) -> tuple[Floats, Traffic]:
    """Return the servers' speeds [n] and their traffic [n]."""
    each = [server.traffic() for server in servers]
    return np.array([server.speed for server in servers]), Traffic(*(np.array(values) for values in zip(*each, strict=True)))


def busy(load: float, service_ms: float, speed: float = 1.0) -> Server:
    """Return a server of which only the load is known.

    Load 1 means that all cores are busy. The server serves one flow of messages that take ``service_ms`` at speed 1, and has a
    little time left.
    """
    if load <= 0 or service_ms <= 0:
        return Server(speed=speed)
    rate_s = 1e3 * min(load, BUSIEST) * speed / service_ms
    return Server(speed=speed, flows=(Flow(rate_s=rate_s, service=Service(mean_ms=service_ms)),))


Ints = NDArray[np.int_]


class Latencies(NamedTuple):
    """Latencies of k placements in milliseconds, each array [k].

    ``longest_ms`` is the latency of the longest path from a producer to a consumer. ``others_ms`` is the extra waiting time of
    other queries' messages, summed over their flows.
    """

    longest_ms: Floats
    others_ms: Floats


class ThroughServers:
    """A query's latency through links and servers (ANTS, sections 3.1 and 3.6), for many placements at once.

    An operator takes messages from the queue of its node. Only messages that another operator of the query has just made on the
    same node reach it at once. So a stream that enters a node is a flow there. The service time of its messages is that of all
    the query's operators that they reach without leaving the node.

    ``latency_ms`` [n, n] is the one-way latency between nodes, ``speeds`` [n] the speed of their servers, and ``others`` the
    traffic [n] of other queries there. By default all servers are idle and have speed 1. ``pinned_at`` holds the node numbers of
    ``problem.pinned``.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        latency_ms: Floats,
        pinned_at: Sequence[int],
        speeds: Floats | None = None,
        others: Traffic | None = None,
    ) -> None:
        self._latency_ms, self._many = latency_ms, len(problem.operators)
        self._speeds = np.ones(len(latency_ms)) if speeds is None else speeds
        self._others = no_traffic(len(latency_ms)) if others is None else others
        self._others_waiting_ms = waiting_ms(self._others)
        names = [operator.id for operator in problem.operators]
        vertex = {name: number for number, name in enumerate([*names, *problem.pinned])}
        self._pinned_at = np.array(pinned_at, dtype=int)
        self._service = [(operator.service.mean_ms, operator.service.scv) for operator in problem.operators]
        self._sources = np.array([vertex[edge.source] for edge in problem.edges], dtype=int)
        self._targets = np.array([vertex[edge.target] for edge in problem.edges], dtype=int)
        self._rates = np.array([edge.rows_s for edge in problem.edges])
        self._order = [vertex[name] for name in in_order(problem)]
        read = np.bincount(self._targets, self._rates, minlength=len(vertex))
        self._batch = [float(r / read[s]) if read[s] else 0.0 for s, r in zip(self._sources, self._rates, strict=True)]
        self._into = [np.flatnonzero(self._targets == number).tolist() for number in range(len(vertex))]
        self._out = [np.flatnonzero(self._sources == number).tolist() for number in range(len(vertex))]
        self._entries = np.flatnonzero(self._targets < self._many)

    def evaluate(self, hosts: Ints) -> Latencies:
        """Return the latencies of placements [k, operators] of node numbers."""
        at = np.concatenate([hosts, np.broadcast_to(self._pinned_at, (len(hosts), len(self._pinned_at)))], axis=1)
        inner = (self._sources < self._many) & (self._targets < self._many)
        local = inner & (at[:, self._sources] == at[:, self._targets])
        mean_ms, scv = self._services(hosts, local)
        waited, others_ms = self._queues(hosts, ~local, mean_ms, scv)
        return Latencies(self._longest(at, local, waited), others_ms)

    def _services(self, hosts: Ints, local: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return mean and squared coefficient of variation of the service times of messages that enter at operators, [k, ..]."""
        mean, variance = np.zeros(hosts.shape), np.zeros(hosts.shape)
        for operator in (vertex for vertex in reversed(self._order) if vertex < self._many):
            own_ms, own_scv = self._service[operator]
            own = own_ms / self._speeds[hosts[:, operator]]
            mean[:, operator], variance[:, operator] = own, own_scv * own**2
            for edge in self._out[operator]:
                target, batch = int(self._targets[edge]), self._batch[edge]
                if target < self._many:
                    follows = local[:, edge]
                    mean[:, operator] += follows * batch * mean[:, target]
                    variance[:, operator] += follows * (batch * variance[:, target] + spread(batch) * mean[:, target] ** 2)
        return mean, variance / np.maximum(mean, 1e-12) ** 2

    def _queues(self, hosts: Ints, entering: NDArray[np.bool_], mean_ms: Floats, scv: Floats) -> tuple[Floats, Floats]:
        """Return each stream's waiting time at its target [k, edges], and the extra wait of others [k]."""
        entered = self._targets[self._entries]
        host, enters = hosts[:, entered], entering[:, self._entries].astype(float)
        own = traffic(self._rates[self._entries], mean_ms[:, entered], scv[:, entered])
        own = Traffic(*(values * enters for values in own))
        together = (host[:, :, None] == host[:, None, :]).astype(float)
        passing = Traffic(*((together @ values[:, :, None])[:, :, 0] for values in own))
        waited = waiting_ms(passing.plus(self._others.at(host)))
        longer = self._others.flows[host] * (waited - self._others_waiting_ms[host])
        shares = enters / np.maximum((together @ enters[:, :, None])[:, :, 0], 1.0)
        queues = np.zeros(entering.shape)
        queues[:, self._entries] = waited
        return queues, (longer * shares).sum(axis=1)

    def _longest(self, at: Ints, local: NDArray[np.bool_], waited: Floats) -> Floats:
        """Return the longest sum of links, queues and service times over all paths.

        ``runs`` is how often a message's flow runs an operator (equation 3's product of batch sizes) on the longest path to it.
        """
        done, runs = np.zeros(at.shape), np.ones(at.shape)
        for vertex in self._order:
            for position, edge in enumerate(self._into[vertex]):
                source = int(self._sources[edge])
                follows = local[:, edge]
                times = np.where(follows, runs[:, source] * self._batch[edge], 1.0)
                through = np.where(follows, 0.0, self._latency_ms[at[:, source], at[:, vertex]])
                reached = done[:, source] + through
                if vertex < self._many:
                    reached += np.where(follows, 0.0, waited[:, edge])
                    reached += times * self._service[vertex][0] / self._speeds[at[:, vertex]]
                later = (reached > done[:, vertex]) | (position == 0)
                done[:, vertex] = np.where(later, reached, done[:, vertex])
                runs[:, vertex] = np.where(later, times, runs[:, vertex])
        longest: Floats = done.max(axis=1, initial=0.0)
        return longest
