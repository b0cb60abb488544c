"""``sbon members``, ``sbon status`` and ``sbon rtt``: the cluster, the state of a node, and the round-trip time of two."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from sbon import SbonError
from sbon.model import MemberInfo, NodeCapacity, NodeStatus, PairInfo, RttRequest
from sbon_cli.client import Client
from sbon_cli.options.names import NODE
from sbon_cli.options.types import milliseconds_of
from sbon_cli.terminal.output import asks_node, cell_text, print_table, tell

STATES = ("alive", "suspect", "away", "dead", "left")


@click.command()
@click.option("--near", default="", type=NODE, help="Sort by round-trip time from that node.")
@click.option(
    "--within",
    callback=lambda context, parameter, value: None if value is None else milliseconds_of(value, "--within"),
    metavar="DURATION",
    help="Only nodes within this round-trip time of --near, by default of the node asked: 30ms, 0.5s.",
)
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only nodes in this state; may be repeated.")
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Only nodes with this tag; may be repeated.")
@asks_node
def members(api: str, near: str, within: float | None, states: tuple[str, ...], tags: tuple[str, ...], json_: bool) -> None:
    """Lists the nodes of the cluster as the node asked sees them; or those near one of them, the nearest first.

    Times are measured where the node asked has measured them lately, and else estimated from the coordinates.
    """
    wanted = _wanted(tags)
    answer = Client(api).members(near, within)
    shown = [m for m in answer if (not states or m.state in states) and wanted.items() <= m.tags.items()]
    tell(shown, json_, lambda listed: show_members(listed, near, within))


def _wanted(tags: tuple[str, ...]) -> dict[str, str]:
    wanted = {}
    for tag in tags:
        key, separator, value = tag.partition("=")
        if not separator:
            raise click.UsageError(f"--tag: {tag!r} is not KEY=VALUE")
        wanted[key] = value
    return wanted


def show_members(shown: Sequence[MemberInfo], near: str = "", within: float | None = None) -> None:
    """Print the members as a table, with distances if requested."""
    if near or within is not None:
        print_table(
            ("node", f"from {near or 'here'} ms", "", "state", "address", "coordinate", "tags", "health"),
            [(m.name, m.distance_ms, _kind(m.distance_ms, m.distance_measured), m.state, m.address, *_last(m)) for m in shown],
            empty="no node is within that distance",
        )
        return
    print_table(
        ("node", "state", "address", "api", "rtt ms", "", "coordinate", "tags", "health"),
        [(m.name, m.state, m.address, m.api, m.rtt_ms, _kind(m.rtt_ms, m.measured), *_last(m)) for m in shown],
        empty="no such members",
    )


@click.command()
@asks_node
def status(api: str, json_: bool) -> None:
    """Shows the node asked: engine, operators, what takes its capacity, coordinate, counters."""
    tell(Client(api).status(), json_, _show_status)


def _show_status(node: NodeStatus) -> None:
    shown = msgspec.to_builtins(node)
    shown["coordinate"] = (
        f"{_point(node.coordinate)}, height {node.height:.1f} ms, error {node.error:.2f}, load {_load(node.load_per_core)}"
    )
    shown["operators"] = ", ".join(node.operators) or "none"
    shown["capacity"] = _capacity(node.capacity)
    shown["health"] = health(node)
    counters = shown.pop("counters")
    del shown["height"], shown["error"], shown["load"], shown["load_per_core"], shown["ready"], shown["reasons"]
    print_table(("", ""), [(name, cell_text(value)) for name, value in shown.items()])
    if node.capacity is not None and node.capacity.held:
        rows = [(one.operator, one.use, f"{one.cores:.2f}", f"{one.memory_mb:.0f}") for one in node.capacity.held]
        print_table(("takes capacity", "as", "cores", "MB"), rows)
    if counters:
        print_table(("counter", "count"), sorted(counters.items()))


def _capacity(capacity: NodeCapacity | None) -> str:
    """Return what is taken of what the node has."""
    if capacity is None:
        return "not reported"
    cores, memory_mb = sum(one.cores for one in capacity.held), sum(one.memory_mb for one in capacity.held)
    places = f"{capacity.taken} of {capacity.operators} places"
    return f"{places}, {cores:.2f} of {capacity.cores:g} cores, {memory_mb:,.0f} of {capacity.memory_mb:,.0f} MB taken"


def _load(per_core: float | None) -> str:
    return "not counted" if per_core is None else f"{per_core:.2f} a core"


def _kind(rtt_ms: float | None, measured: bool) -> str:
    return "" if rtt_ms is None else "measured" if measured else "estimated"


def health(member: MemberInfo | NodeStatus) -> str:
    """Return whether the node says that it can work, and the codes of its reasons; empty if it is not there."""
    if member.ready is None:
        return ""
    word = "ready" if member.ready else "not ready"
    return f"{word} ({', '.join(member.reasons)})" if member.reasons else word


def _last(member: MemberInfo) -> tuple[str, str, str]:
    """Return the last columns: coordinate, tags, health."""
    tags = ", ".join(f"{key}={value}" for key, value in sorted(member.tags.items()))
    return _point(member.coordinate), tags, health(member)


def _point(coordinate: tuple[float, ...] | None) -> str:
    return "-" if coordinate is None else "(" + ", ".join(f"{x:.1f}" for x in coordinate) + ")"


@click.command()
@click.argument("a", type=NODE, metavar="A")
@click.argument("b", type=NODE, metavar="[B]", default="")
@click.option("--measure/--cached", default=None, help="Always measure, or never.")
@asks_node
def rtt(api: str, a: str, b: str, measure: bool | None, json_: bool) -> None:
    """Shows the round-trip time between nodes A and B, by default the node asked.

    Estimated from the coordinates, and measured: the least of three pings, which A sends unless B is the node asked. A pair that
    was measured within directory.fresh_s is not measured again.
    """
    question = RttRequest(pairs=((a, b),), max_age_s=0.0 if measure else None, cached=measure is False)
    (pair,) = Client(api).rtt(question)
    if pair.code:
        ms = "not known" if pair.coordinates_ms is None else f"{pair.coordinates_ms:.1f} ms"
        raise SbonError(pair.code, pair.reason, where=pair.where, hint=pair.hint, details=(f"by the coordinates: {ms}",))
    tell(pair, json_, _show_pair)


def _show_pair(pair: PairInfo) -> None:
    measured = "not lately" if pair.age_s is None else f"{pair.age_s:.1f} s ago by {pair.by}, the least of three pings"
    used = {"probes": "this node's own probes, filtered", "unknown": "unknown"}
    rows = [
        ("by the coordinates", pair.coordinates_ms, ""),
        ("measured", pair.measured_ms, measured),
        ("used by placement", pair.estimate_ms, used.get(pair.estimate_source, pair.estimate_source)),
    ]
    print_table((f"{pair.a} to {pair.b}", "ms", ""), rows)
