"""Latency of queries through links and servers (ANTS, sections 3.1 and 3.6).

It is computed for many placements at once.

An operator takes messages from the queue of its node. Only messages that another operator of the query has just made on the same
node reach it at once. So a stream that enters a node is a flow there. The service time of its messages is that of all the query's
operators that they reach without leaving the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.problem import PlacementProblem, in_order
from sbon_node.placement.model.queueing import Traffic, no_traffic, spread, traffic, waiting_ms

Floats = NDArray[np.float64]
Ints = NDArray[np.int_]


class Latencies(NamedTuple):
    """Latencies of k placements in milliseconds, each array [k].

    ``longest_ms`` is the latency of the longest path from a producer to a consumer. ``others_ms`` is the extra waiting time of
    other queries' messages, summed over their flows.
    """

    longest_ms: Floats
    others_ms: Floats


class ThroughServers:
    """A query's latency through links and servers.

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
        """Return the service time of a message entering at each operator, [k, operators].

        The result is its mean and its squared coefficient of variation.
        """
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

        ``runs`` is how often a message's flow runs an operator (the product of batch sizes in equation 3) on the longest path to
        it.
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
