"""``sbon experiment membership``: detection times of crashes, false deaths, healing, and cost.

The daemon's own membership (:mod:`sbon_lab.simulation.overlay`) in virtual time: real bytes over a simulated network, in a
plane of sites with a median round trip of some 135 ms, jitter of 5 % and 1 of 500 datagrams ten times as late.
"""

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from sbon_lab.experiments.harness.experiment import Notify, ignore
from sbon_lab.simulation.loop import VirtualLoop, run
from sbon_lab.simulation.network.paths import NetworkQuality
from sbon_lab.simulation.overlay import Overlay, Site
from sbon_node.net.transport import Address
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.membership.table import Change
from sbon_node.overlay.space.coordinate import Coordinate

PLANE_MS = 240.0
HEIGHT_MS = 5.0
SETTLE_S = 10.0
PAUSE_S, LEAST_BETWEEN_S = 3.0, 10.0
"""Seconds of a node's stall in bad weather, and least seconds of life between two stalls."""
Rows = list[dict[str, Any]]


class Trial:
    """A cluster that has been together for long, and the events in it."""

    def __init__(self, nodes: int, seed: str, settings: MembershipSettings | None = None) -> None:
        self.rng = random.Random(f"trial/{seed}")
        self.points: dict[str, tuple[float, float]] = {}
        self.deaths: list[tuple[float, str, str]] = []
        """Deaths: time, observer, member."""
        self.changes: Counter[Change] = Counter()
        self.overlay = Overlay(seed, self.one_way_s, settings=settings, listen=self._heard_change)
        self._nodes = nodes

    def one_way_s(self, a: str, b: str) -> float:
        return (math.dist(self.points[a], self.points[b]) + 2 * HEIGHT_MS) / 2000

    async def start(self) -> None:
        sites = [self.new() for _ in range(self._nodes)]
        for site in sites:
            await self.overlay.boot(site)
        coordinates = {name: Coordinate(vector=(*point, 0.0), height=HEIGHT_MS, error=0.1) for name, point in self.points.items()}
        self.overlay.warm_start(coordinates)
        await asyncio.sleep(SETTLE_S)

    def new(self) -> Site:
        name = f"node-{len(self.points):04d}"
        self.points[name] = (PLANE_MS * self.rng.random(), PLANE_MS * self.rng.random())
        return self.overlay.add(name)

    def some(self, count: int) -> list[Site]:
        return self.rng.sample(self.overlay.living(), count)

    def seeds(self) -> list[Address]:
        return [site.address for site in self.some(3)]

    def lose(self, share: float) -> None:
        self.overlay.network.quality = NetworkQuality(loss=share)

    def bytes_by_kind(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for name in self.overlay.sites:
            traffic = self.overlay.network.traffic(name)
            counts.update(traffic.kinds)
            counts["tcp"] += traffic.stream_bytes_sent
        return counts

    def false_deaths(self) -> int:
        """Number of living members that some node regarded as dead."""
        return len({member for _, _, member in self.deaths if self.overlay.sites[member].alive})

    def _heard_change(self, observer: str, member: str, change: Change) -> None:
        self.changes[change] += 1
        if change == "died":
            self.deaths.append((asyncio.get_running_loop().time(), observer, member))


async def crash(trial: Trial, minutes: float) -> dict[str, float]:
    """Crash nodes in sequence; ``all_more`` is the time from the first observer's detection to the last's."""
    now = asyncio.get_running_loop().time
    crashed: dict[str, float] = {}
    for site in trial.some(max(1, min(30, len(trial.overlay.sites) // 5))):
        trial.overlay.crash(site)
        crashed[site.name] = now()
        await asyncio.sleep(trial.rng.uniform(1.0, 3.0))
    await asyncio.sleep(20.0)
    times_of_death = [sorted(at for at, _, member in trial.deaths if member == name) for name in crashed]
    known = [times[-1] - times[0] if len(times) >= len(trial.overlay.living()) else math.inf for times in times_of_death]
    detected = [times[0] - at if times else math.inf for times, at in zip(times_of_death, crashed.values(), strict=True)]
    return {**_percentiles("detect", detected), **_percentiles("all_more", known)}


async def weather(trial: Trial, minutes: float) -> dict[str, float]:
    """Lose 1 of 10 datagrams, and stall 1 of 20 nodes for 3 s about once a minute.

    A node does not stall again within ten seconds: others would see two adjacent stalls as a stall of six seconds.
    """
    trial.lose(0.1)
    for site in trial.some(max(1, len(trial.overlay.sites) // 20)):
        asyncio.get_running_loop().call_later(trial.rng.uniform(0, 60), _stall, trial, site)
    await asyncio.sleep(60 * minutes)
    return {"minutes": minutes, "false_deaths": trial.false_deaths(), "suspicions_told": trial.changes["suspected"]}


def _stall(trial: Trial, site: Site) -> None:
    site.stall.begin(PAUSE_S)
    asyncio.get_running_loop().call_later(
        PAUSE_S + LEAST_BETWEEN_S + trial.rng.expovariate(1 / (60 - LEAST_BETWEEN_S)), _stall, trial, site
    )


async def partition(trial: Trial, minutes: float) -> dict[str, float]:
    """Separate two halves, without seeds."""
    names = list(trial.overlay.sites)
    trial.overlay.network.partition(tuple(names[::2]), tuple(names[1::2]))
    await asyncio.sleep(60 * minutes)
    most_seen = max(len(site.membership.alive()) for site in trial.overlay.living())
    trial.overlay.network.heal()
    return {"minutes": minutes, "seen_apart": most_seen + 1, "heal_s": await trial.overlay.until(trial.overlay.agreed, 900)}


async def restart(trial: Trial, minutes: float) -> dict[str, float]:
    """Crash all nodes at once; they come back within 5 s, each with the addresses of three others."""
    sites = trial.overlay.living()
    addresses = {site.name: [other.address for other in trial.rng.sample(sites, 3)] for site in sites}
    for site in sites:
        trial.overlay.crash(site)
    await asyncio.sleep(10.0)

    async def back(site: Site) -> None:
        await asyncio.sleep(trial.rng.uniform(0, 5))
        await trial.overlay.boot(site, addresses[site.name])

    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(back(site) for site in sites))
    booted_s = asyncio.get_running_loop().time() - began
    return {"booted_s": booted_s, "together_s": booted_s + await trial.overlay.until(trial.overlay.agreed, 900)}


async def oneway(trial: Trial, minutes: float) -> dict[str, float]:
    """Block all traffic from a tenth of the nodes to another tenth, for at most ten minutes; not the other direction."""
    tenth = max(1, len(trial.overlay.sites) // 10)
    chosen = trial.some(2 * tenth)
    for deaf in chosen[:tenth]:
        for mute in chosen[tenth:]:
            trial.overlay.network.cut(mute.name, deaf.name, both=False)
    minutes = min(10.0, minutes)
    await asyncio.sleep(60 * minutes)
    return {"minutes": minutes, "false_deaths": trial.false_deaths(), "suspicions_told": trial.changes["suspected"]}


async def loss(trial: Trial, minutes: float) -> dict[str, float]:
    """Lose 3 of 10 datagrams for at most five minutes, then none."""
    trial.lose(0.3)
    minutes = min(5.0, minutes)
    await asyncio.sleep(60 * minutes)
    deaths = trial.false_deaths()
    trial.lose(0.0)
    return {"minutes": minutes, "false_deaths": deaths, "recover_s": await trial.overlay.until(trial.overlay.agreed, 600)}


async def rest(trial: Trial, minutes: float) -> dict[str, float]:
    """Let a minute pass without events."""
    return await _cost(trial, lambda: asyncio.sleep(60))


async def churn(trial: Trial, minutes: float) -> dict[str, float]:
    """Remove 1 of 100 nodes each minute, by crash or leave in turn, and add as many, for at most three minutes."""

    async def change() -> None:
        pause_s = 60 / max(1.0, len(trial.overlay.sites) / 100)
        for turn in range(max(1, round(min(3.0, minutes) * 60 / pause_s))):
            (site,) = trial.some(1)
            if turn % 2:
                await trial.overlay.leave(site)
            else:
                trial.overlay.crash(site)
            await trial.overlay.boot(trial.new(), trial.seeds())
            await asyncio.sleep(pause_s)

    costs = await _cost(trial, change)
    await asyncio.sleep(30)
    return {**costs, "false_deaths": trial.false_deaths()}


async def join(trial: Trial, minutes: float) -> dict[str, float]:
    """Let a node join; wait until it knows a coordinate of every other, and every other knows it."""
    loop = asyncio.get_running_loop()
    site, began = trial.new(), loop.time()
    seeds = trial.seeds()
    others = trial.overlay.living()
    await trial.overlay.boot(site, seeds)
    known = site.membership
    booted_s = loop.time() - began
    knows_s = await trial.overlay.until(lambda: all(known.coordinate_of(other.name) is not None for other in others), 120)
    known_s = await trial.overlay.until(lambda: all(other.membership.get(site.name) is not None for other in others), 120)
    return {"coordinates_s": booted_s + knows_s, "known_s": booted_s + knows_s + known_s}


SCENARIOS: dict[str, Callable[[Trial, float], Awaitable[dict[str, float]]]] = {
    "crash": crash,
    "rest": rest,
    "churn": churn,
    "join": join,
    "oneway": oneway,
    "loss": loss,
    "restart": restart,
    "weather": weather,
    "partition": partition,
}


def experiment(
    nodes: Iterable[int] = (100, 1000),
    *,
    seed: int = 1,
    scenarios: Sequence[str] = tuple(SCENARIOS),
    minutes: float = 60.0,
    settings: MembershipSettings | None = None,
    notify: Notify = ignore,
) -> dict[str, Any]:
    """Return rows of ``scenario``, ``nodes``, ``figure`` (with its unit) and ``value``; bad conditions last at most
    ``minutes``.

    ``notify`` is called with the speed of each scenario, which is no function of the seed.
    """
    rows: Rows = []
    for count in nodes:
        for scenario in scenarios:
            rows += _run(scenario, count, seed, minutes, settings, notify)
    return {"name": "membership", "rows": rows}


def _run(scenario: str, nodes: int, seed: int, minutes: float, settings: MembershipSettings | None, notify: Notify) -> Rows:
    speed: dict[str, float] = {}

    async def main(loop: VirtualLoop, rng: random.Random) -> dict[str, float]:
        trial = Trial(nodes, f"{seed}/{scenario}/{nodes}", settings)
        await trial.start()
        began, turns, cpu = loop.time(), loop.turns, time.process_time()
        figures = await SCENARIOS[scenario](trial, minutes)
        speed.update(virtual_s=loop.time() - began, events=loop.turns - turns, cpu_s=time.process_time() - cpu)
        await trial.overlay.close()
        return figures

    row = run(main, seed=f"{seed}/{scenario}/{nodes}", max_time_s=60 * minutes + 3600)
    cpu_s = max(1e-9, speed["cpu_s"])
    times = f"{speed['events'] / cpu_s:,.0f} events/s, {speed['virtual_s'] / cpu_s:.1f} times real time"
    notify(f"{scenario}, {nodes} nodes: {speed['virtual_s']:.0f} s in {cpu_s:.0f} s of a core, {times}")
    return [{"scenario": scenario, "nodes": nodes, "figure": name, "value": _value(x)} for name, x in row.items()]


async def _cost(trial: Trial, work: Callable[[], Awaitable[None]]) -> dict[str, float]:
    """Return the bytes that a node sends in a second of the work, by kind."""
    loop = asyncio.get_running_loop()
    began, before = loop.time(), trial.bytes_by_kind()
    await work()
    bytes_sent, seconds = trial.bytes_by_kind(), loop.time() - began
    nodes = len(trial.overlay.living())
    rates = {f"{kind}_bytes_s": (count - before[kind]) / seconds / nodes for kind, count in sorted(bytes_sent.items())}
    return {"bytes_s": sum(rates.values()), **rates}


def _percentiles(name: str, values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"{name}_p{p}_s": ordered[max(0, math.ceil(p / 100 * len(ordered)) - 1)] for p in (50, 99)}


def _value(value: float) -> float | None:
    """Return the value, or null for a condition that never held."""
    return round(value, 3) if math.isfinite(value) else None
