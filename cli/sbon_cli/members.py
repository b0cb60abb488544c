"""``sbon members`` and ``sbon status``: who is there, and how the node asked is doing."""

from __future__ import annotations

import click
import msgspec

from sbon_cli.client import Client
from sbon_cli.durations import milliseconds_of
from sbon_cli.output import as_json, json_option, print_json, print_table, reports_errors
from sbon_node.control.report import MemberInfo


@click.command()
@click.option("--near", default="", metavar="NODE", help="Sort by round-trip time from that node.")
@click.option(
    "--within",
    callback=lambda context, parameter, value: None if value is None else milliseconds_of(value, "--within"),
    metavar="DURATION",
    help="Only nodes so near to --near, by default to the node asked, as far as that is known: 30ms, 0.5s.",
)
@json_option
@click.pass_obj
@reports_errors
def members(api: str, near: str, within: float | None, json_: bool) -> None:
    """Lists the nodes of the cluster as the node asked sees them; or those near one of them, the nearest first.

    Times are measured where the node asked has measured them lately, and else estimated from the coordinates.
    """
    listed = Client(api).members(near, within)
    if as_json(json_):
        print_json(listed)
        return
    if near or within is not None:
        print_table(
            ("node", f"from {near or 'here'} ms", "", "state", "address", "coordinate", "tags"),
            [
                (m.name, m.distance_ms, _kind(m.distance_ms, m.distance_measured), m.state, m.address, *_place_and_words(m))
                for m in listed
            ],
            empty="no node is so near",
        )
        return
    print_table(
        ("node", "state", "address", "api", "rtt ms", "", "coordinate", "tags"),
        [(m.name, m.state, m.address, m.api, m.rtt_ms, _kind(m.rtt_ms, m.measured), *_place_and_words(m)) for m in listed],
    )


@click.command()
@json_option
@click.pass_obj
@reports_errors
def status(api: str, json_: bool) -> None:
    """Shows the node asked: engine, operators, coordinate, counters."""
    found = Client(api).status()
    if as_json(json_):
        print_json(found)
        return
    shown = msgspec.to_builtins(found)
    shown["coordinate"] = (
        f"{_point(found.coordinate)}, height {found.height:.1f} ms, error {found.error:.2f}, load {found.load:.1f} ms"
    )
    shown["operators"] = ", ".join(found.operators) or "none"
    counters = shown.pop("counters")
    del shown["height"], shown["error"], shown["load"]
    print_table(("", ""), [(name, str(value)) for name, value in shown.items()])
    if counters:
        print_table(("counter", "count"), sorted(counters.items()))


def _kind(rtt_ms: float | None, measured: bool) -> str:
    return "" if rtt_ms is None else "measured" if measured else "estimated"


def _place_and_words(member: MemberInfo) -> tuple[str, str]:
    return _point(member.coordinate), ", ".join(f"{key}={value}" for key, value in sorted(member.tags.items()))


def _point(coordinate: tuple[float, ...] | None) -> str:
    return "-" if coordinate is None else "(" + ", ".join(f"{x:.1f}" for x in coordinate) + ")"
