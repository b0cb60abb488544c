"""``sbon submit``: a query from words to rows."""

from __future__ import annotations

import sys
import time

import click
from rich.markup import escape

from sbon_cli.client import Client
from sbon_cli.follow import Silence, consumer_client, unread, why_silent
from sbon_cli.goal_flags import goal_options
from sbon_cli.names import NODE
from sbon_cli.output import EXIT_INTERRUPTED, EXIT_REFUSED, as_json, err, json_option, print_json, reports_errors, rows_text
from sbon_cli.reading import text_of
from sbon_cli.rows import follow_to_the_end
from sbon_cli.settings_flags import decompose_option, join_window_option
from sbon_cli.sink_urls import sink_of
from sbon_cli.waiting import waiting
from sbon_node.control.report import FOLLOW, LIVE, Accepted, QueryInfo, SinkSpec, Submission
from sbon_node.errors import SbonError
from sbon_node.placement.goal import Goal
from sbon_node.query.plan import Decompose


@click.command()
@click.argument("sql", metavar="SQL|@FILE|-")
@goal_options
@decompose_option
@join_window_option
@click.option("--consumer", default="", type=NODE, help="The node the rows go to; by default the one asked.")
@click.option(
    "--to",
    "to",
    metavar="FILE|URL",
    help="Deliver the rows from the consumer's node instead of following them: to a file there (a relative path is taken from "
    "here), postgres://USER@HOST/DATABASE/TABLE, http://HOST/PATH, blackhole:; see docs/connectors.md.",
)
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the sink of --to; may be repeated.")
@click.option("--format", "format_", type=click.Choice(["csv", "ndjson", "parquet"]), help="Format of --to; else by its ending.")
@click.option(
    "--follow/--no-follow",
    "follow",
    default=None,
    help="Wait for the rows (the default without --to), or with --to for the end.",
)
@click.option("--rm", is_flag=True, help="Stop the query when this command ends, however it ends; with --to, add --follow.")
@click.option("--name", default="", help="A name for the query; else a short random one.")
@click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
@json_option
@click.pass_obj
@reports_errors
def submit(
    api: str,
    sql: str,
    goal: Goal,
    decompose: Decompose,
    join_window_ms: int | None,
    consumer: str,
    to: str | None,
    options: tuple[str, ...],
    format_: str | None,
    follow: bool | None,
    rm: bool,
    name: str,
    quiet: bool,
    json_: bool,
) -> None:
    """Submits a query and prints its rows as they arrive: lines on a terminal, NDJSON in a pipe.

    SQL is the query, @FILE a file that holds it, - standard input. Ctrl-C detaches; the query goes on unless --rm was given.
    """
    if (format_ or options) and not to:
        raise click.UsageError("--format and --option need --to")
    client = Client(api)
    sink = sink_of(to, format_, options) if to else SinkSpec()
    following = follow if follow is not None else sink.kind == FOLLOW
    if rm and not following:
        raise click.UsageError("--rm ends the query with this command, which does not wait for it: add --follow")
    if following and sink.kind == FOLLOW:
        consumer_client(client, consumer)  # refused before anything runs
    submission = Submission(
        sql=text_of(sql),
        name=name,
        **goal.wishes(),
        decompose=decompose,
        join_window_ms=join_window_ms,
        consumer=consumer,
        sink=sink,
    )
    info = submitted(client, submission, quiet=quiet)
    if not following:
        if as_json(json_):
            print_json(info)
        else:
            click.echo(info.id)
        if not quiet and sink.kind != FOLLOW:
            err().print(f"[dim]delivered by {escape(info.consumer)}; how far it is: sbon query show {escape(info.id)}[/]")
        return
    if sink.kind == FOLLOW:
        sys.exit(follow_to_the_end(client, info, json_=json_, stop_after=rm))
    sys.exit(_wait(client, info, stop_after=rm))


def submitted(client: Client, submission: Submission, *, quiet: bool = False) -> QueryInfo:
    """The query as it is accepted; what the node does meanwhile is told on a terminal, unless ``quiet``."""
    console = err()
    told = not quiet and console.is_terminal
    try:
        for event in client.submit(submission):
            if isinstance(event, Accepted):
                if not quiet:
                    console.print(f"[bold]{event.query.id}[/] runs, rows arrive at {escape(event.query.consumer)}")
                return event.query
            if told:
                console.print(f"[dim]{event.step:>10}[/]  {escape(event.message)}")
    except KeyboardInterrupt:
        console.print("[dim]interrupted before the query was accepted; whether any of it is left: sbon query list[/]")
        raise
    raise SbonError("node-unreachable", f"the node at {client.api} ended the connection before the query was accepted")


def _wait(client: Client, info: QueryInfo, *, stop_after: bool) -> int:
    """Until the query is over; its rows go to a file meanwhile, and why none do is told."""
    said: list[str] = []
    silence = Silence(lambda: why_silent(info), said.append, time.monotonic)
    try:
        while info.state in LIVE:
            with waiting(f"{info.id} runs"):
                while info.state in LIVE and not said:
                    time.sleep(0.5)
                    before, info = info.rows, client.query(info.id)
                    if info.rows != before:
                        silence.broken()
                    else:
                        silence.lasts()
            while said:
                err().print(f"[dim]{escape(said.pop())}[/]")
    except KeyboardInterrupt:
        if stop_after:
            client.stop_query(info.id)
        return EXIT_INTERRUPTED
    for line in unread(info):
        err().print(f"[dim]{escape(line)}[/]")
    err().print(f"{info.id} {info.state}: {rows_text(info.rows)} {escape(info.reason)}")
    return EXIT_REFUSED if info.state == "failed" else 0
