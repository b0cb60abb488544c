"""This node's own coordinate, moved by what its probes measure."""

from __future__ import annotations

import math
import random

import msgspec

from sbon_node.space import vivaldi
from sbon_node.space.coordinate import MAX_MS, Coordinate, plausible
from sbon_node.space.load import LoadDimension
from sbon_node.space.percentile import PercentileFilter
from sbon_node.space.settings import SpaceSettings


class Link(msgspec.Struct):
    """What is known of the way to one peer."""

    filter: PercentileFilter
    rtt_ms: float
    measured_at: float


class LocalCoordinate:
    """Takes samples, gives the coordinate and the filtered round-trip times. Pure: told the time and given a generator."""

    def __init__(self, settings: SpaceSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = random.Random(rng.getrandbits(64))
        self._coordinate = Coordinate.origin(settings.dimensions)
        self._load = LoadDimension(settings.load_weight_ms, settings.load_smoothing_s)
        self._links: dict[str, Link] = {}

    @property
    def dimensions(self) -> int:
        return self._settings.dimensions

    @property
    def coordinate(self) -> Coordinate:
        return msgspec.structs.replace(self._coordinate, load=min(self._load.value_ms, MAX_MS))

    def observe(self, peer: str, rtt_ms: float, remote: Coordinate | None, now: float) -> bool:
        """One round-trip time to ``peer``, which claims to be at ``remote``. False where the sample is refused.

        An implausible ``remote`` counts as none: the measurement is kept, the coordinate stays.
        """
        if not math.isfinite(rtt_ms) or not 0 <= rtt_ms <= self._settings.max_rtt_ms:
            return False
        link = self._links.get(peer)
        if link is None:
            self._make_room()
            link = Link(PercentileFilter(self._settings.filter_samples, self._settings.filter_percentile), rtt_ms, now)
            self._links[peer] = link
        link.rtt_ms = link.filter.add(rtt_ms)
        link.measured_at = now
        if remote is not None and plausible(remote, self._settings.dimensions):
            self._coordinate = vivaldi.update(
                self._coordinate,
                remote,
                link.rtt_ms,
                self._rng,
                error_gain=self._settings.error_gain,
                step_gain=self._settings.step_gain,
            )
        return True

    def observe_load(self, load_per_core: float, now: float) -> None:
        self._load.observe(load_per_core, now)

    def rtt_ms(self, peer: str, now: float) -> float | None:
        """The filtered measurement, while it is fresh."""
        link = self._links.get(peer)
        return link.rtt_ms if link is not None and now - link.measured_at <= self._settings.fresh_s else None

    def forget(self, peer: str) -> None:
        self._links.pop(peer, None)

    def _make_room(self) -> None:
        if len(self._links) >= self._settings.max_links:
            del self._links[min(self._links, key=lambda p: (self._links[p].measured_at, p))]
