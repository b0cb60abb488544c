"""``sbon rtt``: the round-trip time of two nodes, by the coordinates and measured."""

from __future__ import annotations

import click

from sbon import SbonError
from sbon.model import PairInfo, RttRequest
from sbon_cli.client import Client
from sbon_cli.options.names import NODE
from sbon_cli.terminal.output import asks_node, print_json, print_table


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
        raise SbonError(
            pair.code, pair.reason, where=pair.where, hint=pair.hint, details=(f"by the coordinates: {_ms(pair.coordinates_ms)}",)
        )
    if json_:
        print_json(pair)
        return
    print_table((f"{pair.a} to {pair.b}", "ms", ""), _rows(pair))


def _rows(pair: PairInfo) -> list[tuple[str, float | None, str]]:
    measured = "not lately" if pair.age_s is None else f"{pair.age_s:.1f} s ago by {pair.by}, the least of three pings"
    used = {"probes": "this node's own probes, filtered", "unknown": "unknown"}
    return [
        ("by the coordinates", pair.coordinates_ms, ""),
        ("measured", pair.measured_ms, measured),
        ("used by placement", pair.estimate_ms, used.get(pair.estimate_source, pair.estimate_source)),
    ]


def _ms(value: float | None) -> str:
    return "not known" if value is None else f"{value:.1f} ms"
