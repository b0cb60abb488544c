"""Local search over hosts for objectives that are sums over links: a placement within all room becomes better, move by move.

A move takes one operator to another host; or it takes one with a neighbour, or with all its neighbours of the same host, to one
host; or to two hosts that are good for one of them each; or, where the best host is full, it takes one there and sends one of
those there on to where that is best. Each operator in turn makes its best move, until none has any.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.instance import Floats, Instance, Ints

Flags = NDArray[np.bool_]

SWEEPS = 60
WISHES = 3
"""Full hosts that an operator tries to make room at."""
FEW = 24
"""Hosts of either of two operators that move at once."""
_LEAST = 1e-9
"""Share of the cost below which a gain is none."""


class Moves:
    """One placement, ``hosts`` [operators], and what the nodes have left with it. The objective has no part in delay.

    ``improve`` changes it as long as that makes it better; every move keeps to the room there is. Where hosts have more than they
    have room for, those operators leave first that lose least by it.
    """

    def __init__(self, instance: Instance, hosts: Ints) -> None:
        self._instance, self.hosts = instance, hosts.copy()
        weights = instance.problem.objective
        count = len(instance.operators)
        self._per_ms = instance.rates * weights.usage / 1000.0
        self._per_hop = instance.rates * weights.bandwidth
        at = [instance.pinned_node(vertex) for vertex in range(count, count + len(instance.problem.pinned))]
        self._at = np.concatenate([self.hosts, np.array(at, dtype=int)])
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
        """Until no operator has a better place."""
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
        """Of each operator the hosts that would cost it least, whatever room they have."""
        return [self._few(operator, self._cost(operator), count) for operator in range(len(self._links))]

    def _relieved(self, host: int) -> bool:
        """Moves one operator off the host to the best that has room for it; False where there is no such."""
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
        """Of its links by host [nodes], the others where they are; ``without`` names operators whose links with it are left
        out."""
        ms = self._instance.latency_ms
        found = np.zeros(len(ms))
        for link, other, sends in self._links[operator]:
            if other not in without:
                end = int(self._at[other])
                found += self._per_ms[link] * (ms[:, end] if sends else ms[end])
                if self._per_hop[link]:
                    found += self._per_hop[link]
                    found[end] -= self._per_hop[link]
        return found

    def _together(self, group: tuple[int, ...]) -> bool:
        """Moves all of the group to the one host that is best, if that is better."""
        now = [int(self._at[operator]) for operator in group]
        cost = sum((self._cost(operator, without=group) for operator in group), np.zeros(len(self._instance.nodes)))
        here = self._current(group)
        for operator, host in zip(group, now, strict=True):
            self._left[host] += self._instance.needs[operator]
        fits = self._may[list(group)].all(axis=0) & self._room(self._instance.needs[list(group)].sum(axis=0))
        cost[~fits] = np.inf
        best = int(cost.argmin())
        better = bool(cost[best] < here - self._least)
        for operator, host in zip(group, now, strict=True):
            self._put(operator, best if better else host)
        return better

    def _current(self, group: tuple[int, ...]) -> float:
        """Of the group's links as they are, each once."""
        links = {link: (operator, other, sends) for operator in group for link, other, sends in self._links[operator]}
        total = 0.0
        for link, (operator, other, sends) in links.items():
            ends = (int(self._at[operator]), int(self._at[other]))[:: 1 if sends else -1]
            total += float(self._per_ms[link] * self._instance.latency_ms[ends] + self._per_hop[link] * (ends[0] != ends[1]))
        return total

    def _make_room(self, operator: int) -> bool:
        """Moves it to a host that is full, and one of those there to where that is then best, if both together are better."""
        cost = self._cost(operator)
        cost[~self._may[operator]] = np.inf
        home = int(self._at[operator])
        for wish in np.argsort(cost, kind="stable")[:WISHES].tolist():
            gain = float(cost[home] - cost[wish])
            if not gain > self._least:
                return False
            for guest in np.flatnonzero(self.hosts == wish).tolist():
                if self._swap(operator, home, guest, wish, gain):
                    return True
        return False

    def _swap(self, operator: int, home: int, guest: int, wish: int, gain: float) -> bool:
        needs = self._instance.needs
        self._left[home] += needs[operator]
        self._left[wish] += needs[guest]
        if (needs[operator] <= self._left[wish] + 1e-9).all():
            self._put(operator, wish)
            cost = self._cost(guest)
            lost = float(cost[wish])
            cost[~(self._may[guest] & self._room(needs[guest]))] = np.inf
            onward = int(cost.argmin())
            if cost[onward] - lost < gain - self._least:
                self._put(guest, onward)
                return True
            self._left[wish] += needs[operator]
        self._put(operator, home)
        self._put(guest, wish)
        return False

    def _apart(self, one: int, other: int) -> bool:
        """Moves two that are linked to the two hosts that are best for both, among a few that are good for one of them."""
        pair, needs = (one, other), self._instance.needs
        now = [int(self._at[operator]) for operator in pair]
        few, costs, here = [], [], self._current(pair)
        for operator, rival in (pair, pair[::-1]):
            alone, beside = self._cost(operator, without=(rival,)), self._cost(operator)
            few.append(np.union1d(self._few(operator, alone), self._few(operator, beside)))
            costs.append(alone[few[-1]])
        for operator, host in zip(pair, now, strict=True):
            self._left[host] += needs[operator]
        total = costs[0][:, None] + costs[1] + self._between(one, other, *few)
        for side, operator in enumerate(pair):
            full = ~self._room(needs[operator])[few[side]]
            total[full if side == 0 else (slice(None), full)] = np.inf
        together = self._room(needs[list(pair)].sum(axis=0))
        total[(few[0][:, None] == few[1]) & ~together[few[0]][:, None]] = np.inf
        first, second = np.unravel_index(int(total.argmin()), total.shape)
        better = bool(total[first, second] < here - self._least)
        wished = [int(few[0][first]), int(few[1][second])] if better else now
        for operator, host in zip(pair, wished, strict=True):
            self._put(operator, host)
        return better

    def _few(self, operator: int, cost: Floats, count: int = FEW) -> Ints:
        candidates = self._instance.candidates[operator]
        return candidates[np.argsort(cost[candidates], kind="stable")[:count]]

    def _between(self, one: int, other: int, hosts: Ints, others: Ints) -> Floats:
        """Of the links between the two, by the hosts of both."""
        ms = self._instance.latency_ms
        found = np.zeros((len(hosts), len(others)))
        for link, end, sends in self._links[one]:
            if end == other:
                found += self._per_ms[link] * (ms[np.ix_(hosts, others)] if sends else ms[np.ix_(others, hosts)].T)
                found += self._per_hop[link] * (hosts[:, None] != others)
        return found

    def _room(self, needs: Floats) -> Flags:
        found: Flags = np.all(needs <= self._left + 1e-9, axis=1)
        return found

    def _put(self, operator: int, host: int) -> None:
        """It has been taken from where it was."""
        self.hosts[operator] = self._at[operator] = host
        self._left[host] -= self._instance.needs[operator]
