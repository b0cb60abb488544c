"""``sbon query sink``: adds sinks to a query that runs, lists and removes them."""

from __future__ import annotations

import click

from sbon import states
from sbon.model import QueryInfo, SinkInfo, SinkRequest, SinkSpec
from sbon_cli.client import Client
from sbon_cli.commands.queries.follow import begins
from sbon_cli.commands.queries.sink_urls import sink_of
from sbon_cli.options.names import LIVE_QUERY, NODE, QUERY
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.terminal.output import asks_node, print_table, tell
from sbon_protocol.api.queries import SinkBegin


@click.group(cls=SuggestingGroup)
def sink() -> None:
    """Adds sinks to a query that runs, lists and removes them."""


@sink.command()
@click.argument("query_id", type=LIVE_QUERY, metavar="QUERY")
@click.option("--to", required=True, metavar="PATH_OR_URL", help="As of sbon submit; or follow: for a follower.")
@click.option("--consumer", default="", type=NODE, metavar="NODE", help="The sink's node (default: the one asked).")
@click.option(
    "--from",
    "begin",
    type=click.Choice(["earliest", "now"]),
    help="Begin with the first row, or with the next one (default: with the first, if no row is gone).",
)
@click.option("--format", "format_", metavar="FORMAT", help="Format of --to; by default its extension.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of --to; may be repeated.")
@asks_node
def add(
    api: str,
    query_id: str,
    to: str,
    consumer: str,
    begin: SinkBegin | None,
    format_: str | None,
    options: tuple[str, ...],
    json_: bool,
) -> None:
    """Adds a sink to a query that runs; each of its sinks has its own position, and gets every row from there on."""
    spec = SinkSpec() if to == "follow:" else sink_of(to, format_, options)
    added = Client(api).add_sink(query_id, SinkRequest(sink=spec, consumer=consumer, begin=begin or ""))
    tell(added, json_, f"{added.id} of {query_id} at {added.node} {added.state}, {begins(added)}")


@sink.command()
@click.argument("query_id", type=LIVE_QUERY, metavar="QUERY")
@click.argument("sink_id", metavar="SINK")
@asks_node
def remove(api: str, query_id: str, sink_id: str, json_: bool) -> None:
    """Removes a sink that was added to a query; the rows that it has delivered stay."""
    removed = Client(api).remove_sink(query_id, sink_id)
    tell(removed, json_, f"{removed.id} of {query_id} removed")


@sink.command("list")
@click.argument("query_id", type=QUERY, metavar="QUERY")
@asks_node
def list_(api: str, query_id: str, json_: bool) -> None:
    """Lists the sinks of a query, the first one included."""
    info = Client(api).query(query_id)
    tell(sinks_of(info), json_, lambda sinks: show_sinks(info))


def sinks_of(info: QueryInfo) -> list[SinkInfo]:
    """Return all sinks of a query; the first one is as the query is."""
    state = info.delivery.state if info.delivery is not None else info.state
    first = SinkInfo(id="sink", node=info.consumer, sink=info.sink, state=state, rows=info.rows, delivery=info.delivery)
    return [first, *info.sinks]


def show_sinks(info: QueryInfo) -> None:
    """Print the sinks of a query as a table."""
    print_table(
        ("sink", "node", "to", "state", "rows", "begins"),
        [(one.id, one.node, _target(one), _state(one), one.rows, begins(one)) for one in sinks_of(info)],
    )


def _state(one: SinkInfo) -> str:
    """Return the state of a sink, with the reason of a failure, or why it is paused."""
    paused = one.delivery.state if one.delivery is not None and one.state == states.RUNNING else one.state
    return f"{paused}: {one.reason}" if one.reason else paused


def _target(one: SinkInfo) -> str:
    if one.temporary:
        return "a follower"
    options = one.sink.options
    parts = (one.sink.kind, options.get("url") or options.get("path"), options.get("table"))
    return " ".join(str(part) for part in parts if part)
