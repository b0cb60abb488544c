"""A cell's memory of the paths to one destination (ANTS, sections 3.3 and 3.5).

It follows Di Caro and Dorigo's AntNet, 1998.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping

STEP = 0.3
"""Reinforcement for a trip as short as the best."""
MOST = 0.9
LEARNING = 0.1
"""Weight of a new trip in the running mean and variance."""
CONFIDENCE = 1.96
WINDOW = 50
"""Trips after which the best of them begins to be forgotten."""


class Trips:
    """Gamma: running mean and variance of the times (ms) to a destination, and the recent best.

    They learn from all trips. In the paper they learn from good trips alone, which lets the mean fall and never rise.
    """

    def __init__(self) -> None:
        self.count, self.mean_ms, self.variance = 0, 0.0, 0.0
        self._best_ms = [math.inf, math.inf]

    @property
    def best_ms(self) -> float:
        return min(self._best_ms)

    def good(self, ms: float) -> bool:
        """Return whether ``ms`` is less than mu + I(mu, sigma), half of the mean's confidence interval."""
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
    """Phi: the probability of each neighbour to be the next hop to one destination.

    At first it is proportional to ``weights``, and it returns there without trips: the difference falls to its e-th part in
    ``evaporation`` units of the caller's clock, in which ``updated`` is the time of last use.
    """

    def __init__(self, weights: Mapping[str, float], now: float, evaporation: float = math.inf) -> None:
        self._first, self._evaporation, self._evaporated = _shares(weights), evaporation, now
        self.phi = dict(self._first)
        self.trips, self.updated = Trips(), now

    def evaporate(self, now: float) -> None:
        """Let pheromone evaporate until ``now``."""
        kept = math.exp(-max(0.0, now - self._evaporated) / self._evaporation)
        self._evaporated = now
        if kept < 1.0:
            self.phi = {neighbour: kept * phi + (1.0 - kept) * self._first[neighbour] for neighbour, phi in self.phi.items()}

    def renew(self, weights: Mapping[str, float]) -> None:
        """Take other neighbours: those that stay keep their shares of what is left beside the new ones."""
        first = _shares(weights)
        kept = {neighbour: self.phi[neighbour] for neighbour in first if neighbour in self.phi}
        left = (1.0 - sum(share for neighbour, share in first.items() if neighbour not in kept)) / (sum(kept.values()) or 1.0)
        self.phi = {neighbour: kept[neighbour] * left if neighbour in kept else share for neighbour, share in first.items()}
        self._first = first

    def choose(self, rng: random.Random, visited: Collection[str], flat: float = 0.0) -> str:
        """Choose a neighbour by its probability, among those not visited if any.

        ``flat``, from 0 to 1, makes the probabilities more alike.
        """
        among = [neighbour for neighbour in self.phi if neighbour not in visited] or list(self.phi)
        weights = [(self.phi[neighbour] + 1e-12) ** (1.0 - flat) for neighbour in among]
        return rng.choices(among, weights)[0]

    def reinforce(self, neighbour: str, ms: float, now: float) -> None:
        """Reinforce ``neighbour`` after a good trip that took ``ms``.

        Equations 1 and 2 apply with r = 0.3 T_best / T, at most 0.9. The paper's r = 1 / T depends on the unit of time, and is
        next to nothing in milliseconds.
        """
        good = self.trips.good(ms)
        self.trips.learn(ms)
        self.updated = now
        if good:
            r = min(MOST, STEP * self.trips.best_ms / ms) if ms > 0 else STEP
            for link_end in self.phi:
                self.phi[link_end] *= 1.0 - r
            self.phi[neighbour] += r

    def discourage(self, neighbour: str, now: float) -> None:
        """Weaken ``neighbour`` after tasks found no place on its path (section 3.7); the others share its loss."""
        others = sum(phi for link_end, phi in self.phi.items() if link_end != neighbour)
        if others > 0:
            lost = STEP * self.phi[neighbour]
            self.phi = {
                link_end: phi - lost if link_end == neighbour else phi * (1.0 + lost / others)
                for link_end, phi in self.phi.items()
            }
        self.updated = now


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {neighbour: weight / total for neighbour, weight in weights.items()}
