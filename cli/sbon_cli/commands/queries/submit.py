"""``sbon submit``: submits a query and prints its rows."""

import sys
import time
from contextlib import closing
from typing import Any

import click
from rich.markup import escape

from sbon import SbonError, states
from sbon.follower import Reconnection
from sbon.model import FOLLOW, Accepted, QueryInfo, SinkSpec, Submission
from sbon.states import LIVE
from sbon_cli.client import Client
from sbon_cli.commands.queries.follow import Silence, silence_reason, skipped, unread
from sbon_cli.commands.queries.progress import watched
from sbon_cli.commands.queries.query_flags import query_options
from sbon_cli.commands.queries.rows import Tie, follow_to_the_end, notice, tied
from sbon_cli.commands.queries.sink_urls import sink_of
from sbon_cli.options.groups import GroupedOptions
from sbon_cli.terminal.output import EXIT_INTERRUPTED, EXIT_REFUSED, asks_node, err, print_json, rows_text
from sbon_cli.terminal.reading import text_of
from sbon_cli.terminal.waiting import slow_steps

GROUPS = {
    "Output": ("to", "format_", "options", "sink_failover", "consumer"),
    "Placement": ("strategy", "objective", "max_delay_ms", "min_throughput_bytes_s", "adapt", "decompose", "reuse"),
    "Semantics": ("begin", "join_window_ms", "on_error", "state_provider", "durability", "allow_restart_from_sources"),
    "Command": ("name", "follow", "rm", "quiet", "json_", "help"),
}


@click.command(cls=GroupedOptions, groups=GROUPS)
@click.argument("sql", metavar="SQL|@FILE|-")
@query_options(
    "adapt",
    "decompose",
    "join_window_ms",
    "on_error",
    "state_provider",
    "durability",
    "begin",
    "reuse",
    "allow_restart_from_sources",
)
@click.option(
    "--to",
    "to",
    metavar="FILE|URL",
    help="Deliver the rows to a file at the consumer, postgres://..., http://... or blackhole: (docs/connectors.md).",
)
@click.option("--sink-failover", is_flag=True, help="Let another node take over a lost --to.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of --to; may be repeated.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["csv", "ndjson", "parquet"]),
    metavar="KIND",
    help="csv, ndjson or parquet; by default the extension of --to.",
)
@click.option("--follow/--no-follow", "follow", default=None, help="Wait for rows (default without --to), or the end.")
@click.option("--rm", is_flag=True, help="Stop the query at the end; with --to, add --follow.")
@click.option("--name", default="", metavar="NAME", help="Name of the query; by default a random one.")
@click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
@asks_node
def submit(
    api: str,
    sql: str,
    fields: dict[str, Any],
    to: str | None,
    sink_failover: bool,
    options: tuple[str, ...],
    format_: str | None,
    follow: bool | None,
    rm: bool,
    name: str,
    quiet: bool,
    json_: bool,
) -> None:
    """Submits a query and prints its rows as they arrive.

    SQL is the query, @FILE a file that holds it, - standard input. Ctrl-C detaches; the query keeps running unless --rm was
    given.
    """
    if (format_ or options or sink_failover) and not to:
        raise click.UsageError("--format, --option and --sink-failover need --to")
    client = Client(api)
    sink = sink_of(to, format_, options, failover=sink_failover) if to else SinkSpec()
    following = follow if follow is not None else sink.kind == FOLLOW
    if rm and not following:
        raise click.UsageError("--rm ends the query with this command, which does not wait for it: add --follow")
    submission = Submission(sql=text_of(sql), name=name, sink=sink, **fields)
    with tied(client, stops=rm) as tie:
        info = submitted(client, submission, quiet=quiet, tie=tie)
        if following:
            if sink.kind == FOLLOW:
                code = follow_to_the_end(client, info, tie, json_=json_, quiet=quiet)
            else:
                code = _wait(client, info, tie, quiet=quiet)
    if following:
        sys.exit(code)
    if json_:
        print_json(info)
    else:
        click.echo(info.id)
    if not quiet and sink.kind != FOLLOW:
        err().print(f"[dim]delivered by {escape(info.consumer)}; for its progress: sbon query show {escape(info.id)}[/]")


def submitted(client: Client, submission: Submission, *, quiet: bool = False, tie: Tie | None = None) -> QueryInfo:
    """Submit the query and return it once it is accepted.

    Unless ``quiet``, a terminal shows each step of the node meanwhile, and a pipe or file each slow step. ``tie`` gets the query
    with the first step, long before it is accepted.
    """
    console = err()
    is_shown = not quiet and console.is_terminal
    try:
        with (
            slow_steps(lambda step: None if is_shown or quiet else console.print(f"[dim]waiting: {escape(step)}[/]")) as begin,
            closing(client.submit(submission)) as events,
        ):
            begin(f"no answer of the node at {client.api} yet")
            for event in events:
                if tie is not None:
                    tie.accepted = isinstance(event, Accepted)
                    tie.query = event.query.id if isinstance(event, Accepted) else event.query or tie.query
                if isinstance(event, Accepted):
                    if not quiet:
                        console.print(f"[bold]{event.query.id}[/] runs, rows arrive at {escape(event.query.consumer)}")
                    return event.query
                begin(event.message)
                if is_shown:
                    console.print(f"[dim]{event.step:>10}[/]  {escape(event.message)}")
    except KeyboardInterrupt:
        after = "; to see whether it runs: sbon query list"
        if tie is not None and tie.query:  # Its node gives it up; a tie that stops it says more.
            after = "" if tie.stops else "; it does not stay"
        console.print(f"[dim]interrupted before the query was accepted{after}[/]")
        raise
    raise AssertionError("a submission without an error ends with its acceptance")


def _wait(client: Client, info: QueryInfo, tie: Tie, *, quiet: bool) -> int:
    """Wait until the query ends, while its rows go to a sink; report why none do, and ask again where no answer comes."""
    silence, reconnection = Silence(lambda: silence_reason(info), notice, time.monotonic), Reconnection()
    reconnection.heard()
    try:
        with watched(client, info, quiet=quiet):
            while info.state in LIVE:
                time.sleep(0.5)
                try:
                    before, info = info.rows, client.query(info.id)
                except SbonError as error:
                    pause_s = reconnection.pause_s(error, time.monotonic())
                    if reconnection.tries == 1:
                        notice(f"no answer about {info.id} ({error.message}); asking again")
                    time.sleep(pause_s)
                    continue
                reconnection.heard()
                if info.rows != before:
                    silence.broken()
                else:
                    silence.lasts()
    except KeyboardInterrupt:
        if tie.stops:
            tie.stop(info.rows)
        else:
            notice(f"{info.id} keeps running: sbon query show {info.id}")
        return EXIT_INTERRUPTED
    for line in [*unread(info), *skipped(info)]:
        err().print(f"[dim]{escape(line)}[/]")
    err().print(f"{info.id} {info.state}: {rows_text(info.rows)} {escape(info.reason)}")
    return EXIT_REFUSED if info.state == states.FAILED else 0
