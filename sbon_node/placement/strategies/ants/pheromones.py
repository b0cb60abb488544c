"""What a cell remembers of the ways to one destination (ANTS, sections 3.3 and 3.5; after Di Caro and Dorigo's AntNet, 1998)."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping

STEP = 0.3
"""Of the reinforcement for a trip as short as the best."""
MOST = 0.9
LEARNING = 0.1
"""Share of a new trip in the running mean and variance."""
CONFIDENCE = 1.96
WINDOW = 50
"""Trips after which the best of them begins to be forgotten."""


class Trips:
    """Gamma: running mean and variance of the times (ms) to a destination, and the best of late.

    They learn from all trips. The paper's learn from good ones alone, which lets the mean fall and never rise.
    """

    def __init__(self) -> None:
        self.count, self.mean_ms, self.variance = 0, 0.0, 0.0
        self._best_ms = [math.inf, math.inf]

    @property
    def best_ms(self) -> float:
        return min(self._best_ms)

    def good(self, ms: float) -> bool:
        """Whether ``ms`` is less than mu + I(mu, sigma), half of the mean's confidence interval."""
        return self.count == 0 or ms <= self.mean_ms + CONFIDENCE * math.sqrt(self.variance / min(self.count, WINDOW)) + 1e-9

    def learn(self, ms: float) -> None:
        self.count += 1
        share = max(LEARNING, 1.0 / self.count)
        missed = ms - self.mean_ms
        self.mean_ms += share * missed
        self.variance = (1.0 - share) * (self.variance + share * missed**2)
        if self.count % WINDOW == 0:
            self._best_ms = [math.inf, self._best_ms[0]]
        self._best_ms[0] = min(self._best_ms[0], ms)


class Pheromones:
    """Phi: a probability for each neighbour of being the next hop to one destination, at first in proportion to ``weights``.

    ``updated`` is when it was last touched, by whatever clock the caller has.
    """

    def __init__(self, weights: Mapping[str, float], now: float) -> None:
        total = sum(weights.values())
        self.phi = {neighbour: weight / total for neighbour, weight in weights.items()}
        self.trips, self.updated = Trips(), now

    def choose(self, rng: random.Random, visited: Collection[str], flat: float = 0.0) -> str:
        """A neighbour by its probability, of those not visited where there are any; ``flat``, from 0 to 1, makes all more
        alike."""
        among = [neighbour for neighbour in self.phi if neighbour not in visited] or list(self.phi)
        weights = [(self.phi[neighbour] + 1e-12) ** (1.0 - flat) for neighbour in among]
        return rng.choices(among, weights)[0]

    def reinforce(self, neighbour: str, ms: float, now: float) -> None:
        """Equations 1 and 2 with r = 0.3 T_best / T, at most 0.9, after a trip by ``neighbour`` that took ``ms``, if it was good.

        The paper's r = 1 / T depends on the unit of time, and is next to nothing in milliseconds.
        """
        good = self.trips.good(ms)
        self.trips.learn(ms)
        self.updated = now
        if good:
            r = min(MOST, STEP * self.trips.best_ms / ms) if ms > 0 else STEP
            for one in self.phi:
                self.phi[one] *= 1.0 - r
            self.phi[neighbour] += r

    def discourage(self, neighbour: str, now: float) -> None:
        """The other way round, for a path on which tasks found no place (section 3.7): the others share what it loses."""
        others = sum(phi for one, phi in self.phi.items() if one != neighbour)
        if others > 0:
            lost = STEP * self.phi[neighbour]
            self.phi = {one: phi - lost if one == neighbour else phi * (1.0 + lost / others) for one, phi in self.phi.items()}
        self.updated = now
