"""Local search over hosts for objectives that are sums over links, within all capacities.

A move takes one operator to another host. Or it takes an operator with a neighbour, or with all its neighbours on the same host,
to one host; or two linked operators to two hosts that are good for one of them each. Or, where the best host is full, it takes an
operator there and moves one of that host's operators to its best other host. Each operator in turn makes its best move, until
none has any.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.instance import Floats, Instance, Ints

Flags = NDArray[np.bool_]

SWEEPS = 60
FULL_HOSTS = 3
"""Full hosts at which an operator tries to free capacity."""
FEW = 24
"""Hosts considered for either of two operators that move at once."""
_LEAST = 1e-9
"""Share of the cost below which a gain does not count."""


class Moves:
    """A placement ``hosts`` [operators], and the capacity that nodes have left with it.

    The objective has no part in delay. ``improve`` changes the placement as long as it gets better; every move keeps all
    capacities. If a host is overloaded, the operators with the least loss leave first.
    """

    def __init__(self, instance: Instance, hosts: Ints) -> None:
        self._instance, self.hosts = instance, hosts.copy()
        weights = instance.problem.objective
        count = len(instance.operators)
        self._per_ms = instance.rates * weights.usage / 1000.0
        self._per_hop = instance.rates * weights.bandwidth
        at = [instance.pinned_node(vertex) for vertex in range(count, count + len(instance.problem.pinned))]
        self._at, self._everywhere = np.concatenate([self.hosts, np.array(at, dtype=int)]), np.arange(len(instance.nodes))
        self._links: list[list[tuple[int, int, bool]]] = [[] for _ in range(count)]
        for link, (source, target) in enumerate(zip(instance.sources.tolist(), instance.targets.tolist(), strict=True)):
            if source < count:
                self._links[source].append((link, target, True))
            if target < count:
                self._links[target].append((link, source, False))
        self._near = [sorted({other for _, other, _ in links if other < count}) for links in self._links]
        self._left = instance.free.copy()
        for operator, host in enumerate(self.hosts.tolist()):
            self._left[host] -= instance.needs[operator]
        self._may = np.zeros((count, len(instance.nodes)), dtype=np.bool_)
        for operator, candidates in enumerate(instance.candidates):
            self._may[operator, candidates] = True
        self._least = _LEAST * float(instance.evaluate(self.hosts[None]).additive[0])

    def improve(self) -> Ints:
        """Move operators until none has a better host."""
        for host in sorted(set(self.hosts.tolist())):
            while (self._left[host] < -1e-9).any() and self._relieved(host):
                pass
        for _ in range(SWEEPS):
            moved = False
            for operator in range(len(self._links)):
                for group in self._groups(operator):
                    moved |= self._together(group)
            if not moved:
                for operator in range(len(self._links)):
                    moved |= self._make_room(operator)
                    for other in self._near[operator]:
                        if other > operator:
                            moved |= self._apart(operator, other)
            if not moved:
                break
        return self.hosts

    def cheapest(self, count: int) -> list[Ints]:
        """Return each operator's ``count`` cheapest hosts, whatever their capacity."""
        return [self._few(operator, self._cost(operator), count) for operator in range(len(self._links))]

    def _relieved(self, host: int) -> bool:
        """Move one operator off the host to the best host with capacity. Return False if there is none."""
        least, chosen, onward = np.inf, -1, -1
        for operator in np.flatnonzero(self.hosts == host).tolist():
            cost = self._cost(operator)
            loss = cost - cost[host]
            loss[~(self._may[operator] & self._room(self._instance.needs[operator]))] = np.inf
            best = int(loss.argmin())
            if loss[best] < least:
                least, chosen, onward = float(loss[best]), operator, best
        if chosen >= 0:
            self._left[host] += self._instance.needs[chosen]
            self._put(chosen, onward)
        return chosen >= 0

    def _groups(self, operator: int) -> list[tuple[int, ...]]:
        clump, pending = {operator}, [operator]
        while pending:
            for other in self._near[pending.pop()]:
                if other not in clump and self._at[other] == self._at[operator]:
                    clump.add(other)
                    pending.append(other)
        groups = [(operator,), *((operator, other) for other in self._near[operator] if other > operator)]
        return groups if len(clump) == 1 else [*groups, tuple(sorted(clump))]

    def _cost(self, operator: int, without: Sequence[int] = ()) -> Floats:
        """Return the cost of the operator's links by host [nodes], but for links with operators in ``without``."""
        ms = self._instance.latency_ms
        cost = np.zeros(len(ms))
        for link, other, sends in self._links[operator]:
            if other not in without:
                end = int(self._at[other])
                ends = (self._everywhere, end) if sends else (end, self._everywhere)
                cost += self._per_ms[link] * self._instance.lengths_ms(ms[ends], link, *ends)
                if self._per_hop[link]:
                    cost += self._per_hop[link]
                    cost[end] -= self._per_hop[link]
        return cost

    def _together(self, group: tuple[int, ...]) -> bool:
        """Move the whole group to the best single host, if that is better."""
        now = [int(self._at[operator]) for operator in group]
        cost = sum((self._cost(operator, without=group) for operator in group), np.zeros(len(self._instance.nodes)))
        cost_now = self._current(group)
        for operator, host in zip(group, now, strict=True):
            self._left[host] += self._instance.needs[operator]
        fits = self._may[list(group)].all(axis=0) & self._room(self._instance.needs[list(group)].sum(axis=0))
        cost[~fits] = np.inf
        best = int(cost.argmin())
        better = bool(cost[best] < cost_now - self._least)
        for operator, host in zip(group, now, strict=True):
            self._put(operator, best if better else host)
        return better

    def _current(self, group: tuple[int, ...]) -> float:
        """Return the cost of the group's links as placed, each once."""
        links = {link: (operator, other, sends) for operator in group for link, other, sends in self._links[operator]}
        total = 0.0
        for link, (operator, other, sends) in links.items():
            ends = (int(self._at[operator]), int(self._at[other]))[:: 1 if sends else -1]
            length_ms = self._instance.lengths_ms(self._instance.latency_ms[ends], link, *ends)
            total += float(self._per_ms[link] * length_ms + self._per_hop[link] * (ends[0] != ends[1]))
        return total

    def _make_room(self, operator: int) -> bool:
        """Move the operator to a full host, and an operator of that host elsewhere, if both moves together are better."""
        cost = self._cost(operator)
        cost[~self._may[operator]] = np.inf
        home = int(self._at[operator])
        for option in np.argsort(cost, kind="stable")[:FULL_HOSTS].tolist():
            gain = float(cost[home] - cost[option])
            if not gain > self._least:
                return False
            for guest in np.flatnonzero(self.hosts == option).tolist():
                if self._swap(operator, home, guest, option, gain):
                    return True
        return False

    def _swap(self, operator: int, home: int, guest: int, option: int, gain: float) -> bool:
        needs = self._instance.needs
        self._left[home] += needs[operator]
        self._left[option] += needs[guest]
        if (needs[operator] <= self._left[option] + 1e-9).all():
            self._put(operator, option)
            cost = self._cost(guest)
            lost = float(cost[option])
            cost[~(self._may[guest] & self._room(needs[guest]))] = np.inf
            onward = int(cost.argmin())
            if cost[onward] - lost < gain - self._least:
                self._put(guest, onward)
                return True
            self._left[option] += needs[operator]
        self._put(operator, home)
        self._put(guest, option)
        return False

    def _apart(self, first_operator: int, other: int) -> bool:
        """Move two linked operators to the best pair of hosts, among a few good for either."""
        pair, needs = (first_operator, other), self._instance.needs
        now = [int(self._at[operator]) for operator in pair]
        few, costs, cost_now = [], [], self._current(pair)
        for operator, rival in (pair, pair[::-1]):
            alone, beside = self._cost(operator, without=(rival,)), self._cost(operator)
            few.append(np.union1d(self._few(operator, alone), self._few(operator, beside)))
            costs.append(alone[few[-1]])
        for operator, host in zip(pair, now, strict=True):
            self._left[host] += needs[operator]
        total = costs[0][:, None] + costs[1] + self._between(first_operator, other, *few)
        for side, operator in enumerate(pair):
            full = ~self._room(needs[operator])[few[side]]
            total[full if side == 0 else (slice(None), full)] = np.inf
        together = self._room(needs[list(pair)].sum(axis=0))
        total[(few[0][:, None] == few[1]) & ~together[few[0]][:, None]] = np.inf
        first, second = np.unravel_index(int(total.argmin()), total.shape)
        better = bool(total[first, second] < cost_now - self._least)
        wished = [int(few[0][first]), int(few[1][second])] if better else now
        for operator, host in zip(pair, wished, strict=True):
            self._put(operator, host)
        return better

    def _few(self, operator: int, cost: Floats, count: int = FEW) -> Ints:
        candidates = self._instance.candidates[operator]
        return candidates[np.argsort(cost[candidates], kind="stable")[:count]]

    def _between(self, operator: int, other: int, hosts: Ints, others: Ints) -> Floats:
        """Return the cost of the links between the two operators, by the hosts of both."""
        ms = self._instance.latency_ms
        costs = np.zeros((len(hosts), len(others)))
        for link, end, sends in self._links[operator]:
            if end == other:
                ends = (hosts[:, None], others) if sends else (others, hosts[:, None])
                costs += self._per_ms[link] * self._instance.lengths_ms(ms[ends], link, *ends)
                costs += self._per_hop[link] * (hosts[:, None] != others)
        return costs

    def _room(self, needs: Floats) -> Flags:
        fitting: Flags = np.all(needs <= self._left + 1e-9, axis=1)
        return fitting

    def _put(self, operator: int, host: int) -> None:
        """Place an operator that has been taken from its host."""
        self.hosts[operator] = self._at[operator] = host
        self._left[host] -= self._instance.needs[operator]
