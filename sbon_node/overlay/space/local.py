"""This node's own coordinate, updated from its measurements."""

import heapq
import math
import random
from collections.abc import Container, Mapping

import msgspec
import numpy as np

from sbon_node.overlay.space import refit, vivaldi
from sbon_node.overlay.space.coordinate import MAX_MS, Coordinate, origin
from sbon_node.overlay.space.filters import LinkFilter, Percentile
from sbon_node.overlay.space.load import LoadDimension
from sbon_node.overlay.space.settings import SpaceSettings

SCATTER_MS = 1.0
"""Standard deviation of the starting points of ``refit``: nodes at one point have no direction between them."""
SETTLING_SPEEDUP = 4
"""Factor by which neighbours are measured more often while the coordinate is new."""


class Link(msgspec.Struct):
    """State of the path to one peer."""

    filter: LinkFilter
    rtt_ms: float
    measured_at: float


def percentile_of(settings: SpaceSettings) -> Percentile:
    """Return the percentile that the links of a new node share."""
    adaptive = settings.filter == "adaptive" or (settings.filter == "auto" and settings.algorithm == "refit")
    return Percentile(settings.filter_percentile, adaptive=adaptive)


class LocalCoordinate:
    """This node's coordinate, filtered round-trip times, and choice of neighbours to measure. Pure: takes time and generator."""

    def __init__(self, settings: SpaceSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = random.Random(rng.getrandbits(64))
        self._coordinate = origin(settings.dimensions)
        self._load = LoadDimension(settings.load_weight_ms, settings.load_smoothing_s)
        self._links: dict[str, Link] = {}
        self._percentile = percentile_of(settings)
        self._neighbours = Neighbours(settings.random_neighbours, settings.near_neighbours, self._rng)
        self._cache = refit.NeighbourCache(self._neighbours.slots, settings.dimensions)
        self._position = np.zeros(settings.dimensions + 1)
        self._moves = 0

    @property
    def dimensions(self) -> int:
        return self._settings.dimensions

    @property
    def measuring_interval_s(self) -> float:
        """Return the pause between two measurements of neighbours."""
        return self._settings.probe_interval_s / (SETTLING_SPEEDUP if self.settling else 1)

    @property
    def max_lag_s(self) -> float:
        return self._settings.max_lag_s

    @property
    def coordinate(self) -> Coordinate:
        return msgspec.structs.replace(self._coordinate, load=min(self._load.value_ms, MAX_MS))

    @property
    def settling(self) -> bool:
        """Whether the coordinate has moved so seldom that each probe still improves it much."""
        return self._moves < 2 * self._neighbours.slots

    def observe(self, peer: str, rtt_ms: float, remote: Coordinate | None, now: float) -> bool:
        """Take one round-trip time to ``peer``, whose coordinate is ``remote``; return False if the sample is refused.

        Without ``remote`` the measurement is kept, and the coordinate stays.
        """
        if not math.isfinite(rtt_ms) or not 0 <= rtt_ms <= self._settings.max_rtt_ms:
            return False
        link = self._links.get(peer)
        if link is None:
            self._make_room()
            link = Link(LinkFilter(self._settings.filter_samples, self._percentile), rtt_ms, now)
            self._links[peer] = link
        link.rtt_ms = link.filter.add(rtt_ms)
        link.measured_at = now
        slot = self._neighbours.admit(peer)
        if remote is None:
            return True
        if self._settings.algorithm == "refit":
            if slot is not None:
                self._refit(slot, remote, link.rtt_ms)
        else:
            self._moves += 1
            gains = {"error_gain": self._settings.error_gain, "step_gain": self._settings.step_gain}
            self._coordinate = vivaldi.update(self._coordinate, remote, link.rtt_ms, self._rng, **gains)
        return True

    def observe_load(self, load_per_core: float, now: float) -> None:
        self._load.observe(load_per_core, now)

    def rtt_ms(self, peer: str, now: float) -> float | None:
        """Return the filtered measurement, while it is fresh."""
        link = self._links.get(peer)
        return link.rtt_ms if link is not None and now - link.measured_at <= self._settings.fresh_s else None

    def measured(self, peer: str) -> bool:
        """Return whether there is any measurement of the peer."""
        return peer in self._links

    def remembered_ms(self) -> dict[str, float]:
        """Return every kept measurement, filtered, without a limit of age."""
        return {peer: link.rtt_ms for peer, link in self._links.items()}

    def forget(self, peer: str) -> None:
        self._links.pop(peer, None)
        slot = self._neighbours.forget(peer)
        if slot is not None:
            self._cache.clear(slot)

    # -- choice of neighbours --------------------------------------------------------------------------------------------

    def choose_neighbours(self, candidates: Mapping[str, Coordinate | None]) -> None:
        """Choose the neighbours to measure among all candidates and their coordinates; call it now and then.

        Nearness comes from the measurement, however old, else from the coordinates: so each choice of the nearest tries
        new ones.
        """
        estimates = {name: self._estimate_ms(name, coordinate) for name, coordinate in candidates.items()}
        before = {name: slot for name in self._neighbours.names() if (slot := self._neighbours.slot_of(name)) is not None}
        fresh = self._neighbours.renew(estimates, near=not self.settling, measured=self._links)
        for name, slot in before.items():
            if self._neighbours.slot_of(name) != slot:
                self._cache.clear(slot)
        for slot, name in fresh:
            self._cache.clear(slot)
            link, coordinate = self._links.get(name), candidates[name]
            if link is not None and coordinate is not None:
                self._cache.put(slot, (*coordinate.vector, coordinate.height), link.rtt_ms)

    def next_neighbour(self) -> str | None:
        """Return the next neighbour to measure."""
        return self._neighbours.next()

    def neighbours(self) -> list[str]:
        return self._neighbours.names()

    def _estimate_ms(self, name: str, coordinate: Coordinate | None) -> float:
        link = self._links.get(name)
        if link is not None:
            return link.rtt_ms
        return math.inf if coordinate is None else self._coordinate.distance_ms(coordinate)

    def _make_room(self) -> None:
        if len(self._links) >= self._settings.max_links:
            del self._links[min(self._links, key=lambda p: (self._links[p].measured_at, p))]

    # -- refit --------------------------------------------------------------------------------------------------------

    def _refit(self, slot: int, remote: Coordinate, rtt_ms: float) -> None:
        self._cache.put(slot, (*remote.vector, remote.height), rtt_ms)
        joining = refit.joins(self._moves, self._cache)
        if joining and self._moves < refit.JOIN_STARTS:
            self._position = refit.middle(self._cache)
            self._scatter()
        elif self._moves == 0:
            self._scatter()
        steps = 1 + refit.extra_steps(self._moves, joining=joining)
        self._moves += 1
        self._advance(steps)

    def _advance(self, steps: int) -> None:
        """Take so many steps of ``refit``, at least one, over all neighbours."""
        known = None if self._cache.whole else self._cache.known
        position, height, few = self._position, self._settings.height, self._among_few
        for _ in range(steps):
            fit = refit.step(position, self._cache.positions, self._cache.rtt_ms, known, height=height, few=few)
            position = fit.position
        self._place(fit)

    @property
    def _among_few(self) -> bool:
        return self._moves >= refit.SETTLED_AMONG_FEW and self._cache.count < refit.FEW

    def _scatter(self) -> None:
        self._position[:-1] += [self._rng.gauss(0, SCATTER_MS) for _ in range(self.dimensions)]

    def _place(self, fit: refit.Fit) -> None:
        self._position = fit.position
        *vector, height = fit.position.tolist()
        self._coordinate = Coordinate(vector=tuple(vector), height=height, error=min(float(fit.share), vivaldi.MAX_ERROR))


SCOUTS = 0.25
"""Share of the near slots for nodes that seem nearest and were never measured; otherwise a wrong coordinate stays undetected."""


class Neighbours:
    """``random_slots`` slots, then ``near_slots``; each holds a name of a neighbour that the node measures, or nothing.

    Random neighbours hold the whole map together. They alone place distant nodes well and close ones badly; near ones alone fold
    the map. A slot keeps its neighbour as long as it can, since the filter of that link needs its last samples.
    """

    def __init__(self, random_slots: int, near_slots: int, rng: random.Random) -> None:
        self._random, self._rng = random_slots, rng
        self._slots: list[str | None] = [None] * (random_slots + near_slots)
        self._by_name: dict[str, int] = {}
        self._turn = -1

    def __len__(self) -> int:
        """The number of neighbours."""
        return len(self._by_name)

    @property
    def slots(self) -> int:
        return len(self._slots)

    def names(self) -> list[str]:
        return [name for name in self._slots if name is not None]

    def slot_of(self, name: str) -> int | None:
        return self._by_name.get(name)

    def admit(self, name: str) -> int | None:
        """Return the name's slot: its present one, or a free one, random ones first; None where all are taken."""
        slot = self._by_name.get(name)
        if slot is None and len(self._by_name) < len(self._slots):
            slot = self._slots.index(None)
            self._put(slot, name)
        return slot

    def forget(self, name: str) -> int | None:
        """Remove a name; return its slot."""
        slot = self._by_name.pop(name, None)
        if slot is not None:
            self._slots[slot] = None
        return slot

    def renew(self, estimates_ms: Mapping[str, float], *, near: bool, measured: Container[str] = ()) -> list[tuple[int, str]]:
        """Fill free random slots at random, and with ``near`` the others with the nearest; return the changed slots.

        Candidates come with their estimated round-trip times; a share ``SCOUTS`` of the near slots goes to those not
        ``measured``. A neighbour that has lost its slot is in none.
        """
        for name in [name for name in self._by_name if name not in estimates_ms]:
            self.forget(name)
        fresh: list[tuple[int, str]] = []
        free = [slot for slot in range(self._random) if self._slots[slot] is None]
        if free:
            others = sorted(name for name in estimates_ms if self._by_name.get(name, self._random) >= self._random)
            for slot, name in zip(free, self._rng.sample(others, min(len(free), len(others))), strict=False):
                self.forget(name)
                self._put(slot, name)
                fresh.append((slot, name))
        return fresh + self._renew_near(estimates_ms, measured) if near else fresh

    def next(self) -> str | None:
        """Return the next neighbour to measure."""
        for _ in self._slots:
            self._turn = (self._turn + 1) % len(self._slots)
            name = self._slots[self._turn]
            if name is not None:
                return name
        return None

    def _renew_near(self, estimates_ms: Mapping[str, float], measured: Container[str]) -> list[tuple[int, str]]:
        many = len(self._slots) - self._random
        near = {name for name in self._slots[: self._random] if name is not None}
        others = [(rtt_ms, name) for name, rtt_ms in estimates_ms.items() if name not in near]
        nearest = [name for _, name in heapq.nsmallest(many - int(SCOUTS * many), others)]
        near.update(nearest)
        left = ((name in measured, rtt_ms, name) for rtt_ms, name in others if name not in near)
        nearest += [name for *_, name in heapq.nsmallest(many - len(nearest), left)]
        chosen = set(nearest)
        for slot in range(self._random, len(self._slots)):
            tenant = self._slots[slot]
            if tenant is not None and tenant not in chosen:
                self.forget(tenant)
        fresh: list[tuple[int, str]] = []
        for name in nearest:
            if name not in self._by_name:
                slot = self._slots.index(None, self._random)
                self._put(slot, name)
                fresh.append((slot, name))
        return fresh

    def _put(self, slot: int, name: str) -> None:
        self._slots[slot] = name
        self._by_name[name] = slot
