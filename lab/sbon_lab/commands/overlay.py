"""``sbon experiment overlay``: real daemons in an emulated wide area, compared with simulated ones in virtual time."""

import importlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sbon.local.cluster import LocalCluster
from sbon.local.node import LocalNode
from sbon.local.wide_area import WideArea, load_wide_area
from sbon_cli.options.types import Number
from sbon_cli.terminal.output import err, json_option, reports_errors
from sbon_lab.commands.bench import show_result
from sbon_lab.commands.options import area_file_option, seed_option
from sbon_node.base.logging import output
from sbon_node.overlay.space.coordinate import Coordinate

EVERY_S = 10.0


@click.command()
@area_file_option
@click.option("--nodes", type=click.IntRange(2, 250), default=24, show_default=True)
@click.option(
    "--minutes", type=Number(0.5, 600), default=10.0, show_default=True, help="Minutes after all nodes know each other."
)
@seed_option("the simulation")
@json_option
@reports_errors
def overlay(data: Path, nodes: int, minutes: float, seed: int, json_: bool) -> None:
    """Nodes without queries: error, movement, processor time and memory, and how far the simulation agrees.

    Shares are of one core, memory is what a daemon has for itself and its part of what it shares. Lasts a little longer than
    the given minutes; run it on a machine that does nothing else.
    """
    output.silence()
    module: Any = importlib.import_module("sbon_lab.experiments.live.overlay")
    area = load_wide_area(data).chosen(nodes, "--data")
    with err().status("starting") as status:
        live = _live(module, area, 60 * minutes, lambda at_s: status.update(f"sockets: {at_s:.0f} s"))
        simulated = module.simulated(
            area.names,
            area.rtt_ms,
            seconds=60 * minutes,
            every_s=EVERY_S,
            seed=seed,
            notify=lambda at_s: status.update(f"virtual time: {at_s:.0f} s"),
        )
    ratio = {name: live[name] / simulated[name] for name in simulated if name in live and simulated[name]}
    rows = [{"world": "sockets", **live}, {"world": "virtual time", **simulated}, {"world": "ratio", **ratio}]
    columns = ["world", *live, *(name for name in simulated if name not in live)]
    show_result({"name": "overlay", "rows": [{c: _rounded(row.get(c)) for c in columns} for row in rows]}, json_)


def _live(module: Any, area: WideArea, seconds: float, notify: Callable[[float], None]) -> dict[str, Any]:
    footprint: Any = importlib.import_module("sbon_lab.bench.footprint")
    sights: list[Any] = []
    with LocalCluster(area.names, area) as cluster:
        families = {node.name: footprint.family(node.pid) for node in cluster.nodes}
        began, cpu_s = time.monotonic(), {name: footprint.cpu_s(family) for name, family in families.items()}
        while not sights or sights[-1].at_s < seconds:
            at_s = time.monotonic() - began
            missed = frozenset(name for node in cluster.nodes for name in _lost_at(node))
            sights.append(module.Sight(at_s, {node.name: _place(node) for node in cluster.nodes}, missed))
            notify(at_s)
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - began - at_s)))
        took_s = time.monotonic() - began
        shares = [footprint.cpu_since(cpu_s[name], footprint.cpu_s(family)) / took_s for name, family in families.items()]
        memory_mb = [footprint.memory_mb(family) for family in families.values()]
        crashes = [module.Crash(*_crashed(cluster, name, module.PAUSE_S)) for name in module.victims(area.names)]
    return {
        **module.figures(sights, area.names, area.rtt_ms),
        **module.death_figures(sights, crashes),
        "cpu_pct_median": 100 * statistics.median(shares),
        "cpu_pct_most": 100 * max(shares),
        "memory_mb_median": statistics.median(memory_mb),
        "memory_mb_most": max(memory_mb),
    }


def _place(node: LocalNode) -> Coordinate:
    status = node.client.status()
    return Coordinate(vector=status.coordinate, height=status.height)


def _lost_at(node: LocalNode) -> list[str]:
    """Return the members that it does not regard as alive."""
    return [member.name for member in node.client.members() if member.state not in ("alive", "suspect")]


def _crashed(cluster: LocalCluster, name: str, pause_s: float) -> tuple[float, float]:
    """Return the seconds from its death until the first and the last other node notice."""
    began = time.monotonic()
    cluster[name].kill()
    living = [node for node in cluster.nodes if node.running]
    first_s = None
    while waiting := [node for node in living if name not in _lost_at(node)]:
        if first_s is None and len(waiting) < len(living):
            first_s = time.monotonic() - began
        time.sleep(pause_s)
    last_s = time.monotonic() - began
    return (last_s if first_s is None else first_s), last_s


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
