"""``sbon query``: lists, shows, follows and stops queries, and moves their operators."""

import sys
from contextlib import closing
from datetime import UTC, datetime
from typing import get_args

import click
from rich.markup import escape
from rich.status import Status

from sbon import model, states
from sbon.model import FOLLOW, QueryInfo, SinkInfo
from sbon_cli.client import Client
from sbon_cli.commands.queries.durability import show_backups, show_survival
from sbon_cli.commands.queries.follow import ANY_SINK, begins, unread
from sbon_cli.commands.queries.progress import progress_text
from sbon_cli.commands.queries.rows import follow_to_the_end, tied
from sbon_cli.commands.queries.sink_urls import sink_of
from sbon_cli.options.names import LIVE_QUERY, NODE, QUERY
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.options.types import Choice
from sbon_cli.terminal.output import (
    asks_node,
    bytes_text,
    counted,
    err,
    milliseconds_text,
    print_json,
    print_records,
    print_table,
    rows_text,
    say,
    tell,
)
from sbon_protocol.api.queries import SinkBegin
from sbon_protocol.api.query_ids import name_of
from sbon_protocol.api.states.query_states import QueryState

DELAY = "delay from source to sink, any wait in the source's history included:"
LONG_BATCH_S = 5.0
"""Age in seconds from which a running batch is shown."""


@click.group(cls=SuggestingGroup)
def query() -> None:
    """Lists, shows, follows and stops queries, and moves their operators."""


@query.command("list")
@click.option(
    "--state",
    "states_",
    multiple=True,
    type=Choice(get_args(QueryState)),
    help="Only queries in this state; may be repeated.",
)
@asks_node
def list_(api: str, states_: tuple[str, ...], json_: bool) -> None:
    """Lists every query of the cluster, the oldest first."""
    queries = Client(api).queries()
    shown = model.QueryList((one for one in queries if not states_ or one.state in states_), queries.unanswered)
    tell(shown, json_, show_queries)
    print_unanswered(queries)


def print_unanswered(queries: model.QueryList) -> None:
    """Name on stderr the nodes that may hold more queries, except those whose queries are in the list."""
    named_nodes = {query.node for query in queries if query.state == states.UNREACHABLE}
    for answer in queries.unanswered:
        more = "more of its queries" if answer.node in named_nodes else "queries that are not listed"
        err().print(f"[yellow]no answer from {escape(str(answer))}[/]: it may hold {more}")


def show_queries(queries: model.QueryList) -> None:
    """Print the queries as a table."""
    print_table(
        ("query", "state", "consumer", "strategy", "submitted", "rows", "sql"),
        [(q.id, _state(q), q.consumer, q.strategy, _time(q.submitted_ms), q.rows, _short(q.sql)) for q in queries],
        empty="no queries" + (" at the nodes that answer" if queries.unanswered else ""),
    )


@query.command()
@click.argument("query_id", type=QUERY, metavar="QUERY")
@asks_node
def show(api: str, query_id: str, json_: bool) -> None:
    """Shows a query's plan, its operators' hosts and why, and its links."""
    tell(Client(api).query(query_id), json_, show_query)


def show_query(info: QueryInfo) -> None:
    """Print the query for people."""
    reason = f" ({info.reason})" if info.reason else ""
    say(f"[bold]{escape(info.id)}[/] {info.state}{escape(reason)}, {rows_text(info.rows)} at {escape(info.consumer)}")
    if info.progress is not None:
        say(escape(progress_text(info.progress)))
    if (delay := info.delay) is not None and delay.frames:
        say(escape(_delay_text(delay, info.max_delay_ms)))
    show_survival(info)
    for line in unread(info):
        say(escape(line))
    say(f"[dim]{escape(info.sql.strip())}[/]\n")
    if info.sink.kind != FOLLOW:
        _show_delivery(info)
    if info.sinks:
        show_sinks(info)
        say()
    planned = {o.id: o.rate.rows_s for o in info.plan.operators} if info.plan else {}
    placed = {a.operator: a for a in info.placement.assignments} if info.placement else {}
    print_records(
        (
            {
                "operator": o.id,
                "node": o.node,
                "state": _doing(o, info),
                "rows in": o.stats.rows_in if o.stats else None,
                "rows out": o.stats.rows_out if o.stats else None,
                "rows/s": o.stats.rows_out_s if o.stats else None,
                "planned": planned.get(o.id),
                "why there": why_there(o, placed.get(o.id)),
            }
            for o in info.operators
        ),
        empty="no operators",
    )
    say()
    _show_shared(info)
    show_backups(info)
    _show_measures(info)
    _show_decisions(info)
    for o in info.operators:
        if o.skipped:
            skipped = f"{o.id} has skipped {rows_text(o.skipped)} because expressions raised errors"
            say(escape(f"{skipped}: {o.dead_letters} at {o.node}"))
    if info.plan is not None:
        say()
        print_table(("operator", "fragment"), [(o.id, o.fragment) for o in info.plan.operators])
    say()
    print_records(
        (
            {
                "stream": x.stream,
                "from": x.source_node,
                "to": x.target_node,
                "rows": x.rows,
                "bytes": bytes_text(x.bytes),
                "one-way ms": x.latency_ms,
                "behind": bytes_text(x.bytes_behind),
                "dropped": x.dropped,
            }
            for x in info.links
        ),
        empty="no links",
    )


def _show_shared(info: QueryInfo) -> None:
    """Print the operators that it shares with other queries: those of others that it reads, and its own that others read."""
    shared = [*info.shared, *(o for o in info.operators if o.queries)]
    if shared:
        print_table(
            ("shared", "node", "state", "rows out", "by"),
            [
                (o.id, o.node, _doing(o, info), o.stats.rows_out if o.stats else None, ", ".join(sorted(map(name_of, o.queries))))
                for o in shared
            ],
        )
        say()


def why_there(operator: model.OperatorInfo, placed: model.Assignment | None) -> str:
    """Return the reason of its placement, or why it has moved since."""
    if operator.past_moves:
        last = operator.past_moves[-1]
        return f"it moved here from {last.node}{last.reason and ': '}{last.reason}"
    if placed is None:
        return ""
    moved = operator.node not in ("", placed.node)
    return f"it was moved here after it had been placed at {placed.node}" if moved else placed.reason


def _doing(operator: model.OperatorInfo, query: QueryInfo) -> str:
    """Return its state, why it waits or failed unless the query's reason says that, and its batch: a long batch is no hang."""
    reasons = [operator.reason] if operator.reason and operator.reason not in query.reason else []
    if (move := operator.move) is not None:
        reasons.insert(0, f"moves {operator.node} -> {move.target}, {step_text(move)}")
    stats = operator.stats
    if stats is not None and stats.under_way_s is not None and stats.under_way_s >= LONG_BATCH_S:
        reasons.append(f"{stats.under_way_s:.0f} s on a batch of {rows_text(stats.under_way_rows)}")
    return f"{operator.state}: {'; '.join(reasons)}" if reasons else operator.state


def _delay_text(delay: model.SinkDelay, bound_ms: float | None) -> str:
    """Return the delay of its newest rows, with its error and the query's bound."""
    error = "of unknown error" if delay.error_ms is None else f"± {milliseconds_text(delay.error_ms)}"
    bound = "" if bound_ms is None else f"; --max-delay {bound_ms:g} ms bounds the part of the network"
    rows = f"over {counted(delay.frames, 'frame')} (see streams.delay_window_s)"
    p50, p95 = milliseconds_text(delay.p50_ms or 0.0), milliseconds_text(delay.p95_ms or 0.0)
    return f"{DELAY} p50 {p50}, p95 {p95}, {error}, {rows}{bound}"


def _show_measures(info: QueryInfo) -> None:
    """Print what running operators have measured, weighted towards the present."""
    measured = [(o.id, o.measures) for o in info.operators if o.measures is not None and o.measures.batch_ms is not None]
    if measured:
        print_records(
            {
                "measured": operator,
                "rows/s in": one.rows_in_s,
                "rows/s out": one.rows_out_s,
                "bytes/s in": bytes_text(sum(read.bytes_s or 0.0 for read in one.inputs)),
                "bytes/s out": bytes_text(one.bytes_out_s or 0.0),
                "rows out / in": "-" if one.selectivity is None else f"{one.selectivity:.3g}",
                "ms a row": one.row_ms,
                "CPU ms a row": one.cpu_row_ms,
                "ms a batch": one.batch_ms,
                "state": "-" if one.state_bytes is None else bytes_text(one.state_bytes),
            }
            for operator, one in measured
        )


def _show_decisions(info: QueryInfo) -> None:
    """Print the decisions of hosts and of the query's leader about the places of operators, oldest first."""
    decisions = sorted((one for operator in info.operators for one in operator.decisions), key=lambda one: one.at_ms)
    if decisions:
        say()
        print_records(
            {
                "decided": _time(one.at_ms),
                "operator": one.operator,
                "node": one.node,
                "by": f"leader {one.leader}" if one.leader else "host",
                "verdict": one.verdict,
                "times": one.times,
                "reason": "; ".join(filter(None, (one.reason, one.outcome))),
            }
            for one in decisions
        )


def _show_delivery(info: QueryInfo) -> None:
    """Print the sink and its progress."""
    table = str(info.sink.options.get("table", ""))
    failover = ", which another node takes over if this one is lost" if info.sink.failover else ""
    say(escape(f"to {info.sink.kind} {_target(info)} {table}".rstrip() + failover))
    delivery = info.delivery
    if delivery is not None:
        letters = f", kept in {delivery.dead_letters}" if delivery.dead_letters else ""
        message = f"{rows_text(delivery.rows)} delivered, {delivery.refused:,} refused{letters}"
        say(escape(f"{delivery.state}; {message}, {counted(delivery.retries, 'retry', 'retries')}"))
    say()


def _target(info: QueryInfo) -> str:
    return next((str(info.sink.options[one]) for one in ("url", "path", "stream") if info.sink.options.get(one)), "")


@query.command()
@click.argument("query_id", type=LIVE_QUERY, metavar="QUERY")
@asks_node
def stop(api: str, query_id: str, json_: bool) -> None:
    """Stops a query and frees what it held."""
    info = Client(api).stop_query(query_id)
    tell(info, json_, f"{info.id} {info.state}")


@query.command("usage")
@click.argument("query_id", type=QUERY, metavar="QUERY")
@asks_node
def query_usage(api: str, query_id: str, json_: bool) -> None:
    """Shows what a query cost the network: bytes x one-way latency, link by link."""
    tell(Client(api).query_usage(query_id), json_, show_query_usage)


def show_query_usage(charged: model.QueryUsage) -> None:
    """Print the network usage, against sending all rows to the consumer. Sums leave out links within a node."""
    for title, lines, total in (
        (f"{charged.query}, placed by {charged.strategy}", charged.links, charged.byte_ms),
        ("with all rows sent to the consumer", charged.baseline, charged.baseline_byte_ms),
    ):
        between = [x for x in lines if x.source_node != x.target_node]
        print_table(
            ("stream", "from", "to", "bytes", "one-way ms", "MB x ms"),
            [
                *((x.stream, x.source_node, x.target_node, bytes_text(x.bytes), x.latency_ms, _mega(x.byte_ms)) for x in between),
                ("total between nodes", "", "", bytes_text(sum(x.bytes for x in between)), None, total / 1e6),
            ],
            title=title,
        )
        if len(between) < len(lines):
            within = bytes_text(sum(x.bytes for x in lines if x not in between))
            say(f"[dim]and {within} within a node, on {counted(len(lines) - len(between), 'link')}: free[/]")
        say()
    if charged.skipped:
        say(f"skipped: {rows_text(charged.skipped)} because expressions raised errors; see sbon query show {charged.query}")
    if charged.baseline_byte_ms > 0:
        say(f"network usage: [bold]{charged.byte_ms / charged.baseline_byte_ms:.1%}[/] of sending all rows to the consumer")


def _mega(value: float | None) -> float | None:
    return None if value is None else value / 1e6


@query.command()
@click.argument("query_id", type=QUERY, metavar="QUERY")
@click.option("--rm", is_flag=True, help="Stop the query when this command ends.")
@click.option(
    "--sink", default=ANY_SINK, metavar="SINK", help="A sink that was added with --to follow: (default: one of its own)."
)
@asks_node
def follow(api: str, query_id: str, rm: bool, sink: str, json_: bool) -> None:
    """Prints the rows that no earlier follower has taken, until the query is over; any node passes them on.

    If another follower reads the query, or its rows go to a file or a database, this one gets every row beside that: from the
    first row if all are still there, or else from now on.
    """
    client = Client(api)
    info = client.query(query_id)
    with tied(client, info.id, stops=rm) as tie:
        code = follow_to_the_end(client, info, tie, json_=json_, sink=sink)
    sys.exit(code)


def _state(query: QueryInfo) -> str:
    """Return the state, with the reason if it is unusual for that state."""
    expected = query.state in (states.FINISHED, states.STOPPED) or not query.reason
    return query.state if expected else f"{query.state}: {_short(query.reason)}"


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if milliseconds else "-"


def _short(sql: str) -> str:
    line = " ".join(sql.split())
    return line if len(line) <= 60 else line[:59] + "…"


# -- Moves of operators, and how far they are -------------------------------------------------------------------------


HOW = ("follow", "stop")


@query.command()
@click.argument("query_id", type=LIVE_QUERY, metavar="QUERY")
@click.argument("operator")
@click.option("--to", type=NODE, metavar="NODE", help="Node on which the operator shall go on.")
@click.option(
    "--how",
    type=click.Choice(HOW),
    default="follow",
    show_default=True,
    help="Move it once the node is level with it, or stop it while its state is copied.",
)
@click.option("--cancel", is_flag=True, help="Give up the move that is under way: the operator goes on where it is.")
@asks_node
def migrate(api: str, query_id: str, operator: str, to: str | None, how: str, cancel: bool, json_: bool) -> None:
    """Moves an operator to another node with its state, while the query runs.

    OPERATOR is its id as `sbon query show` lists it, or the part after the query's. One operator of a query moves at a time,
    operators of several queries at once. If the move fails, the operator goes on where it was. The move goes on if the command
    is interrupted, until --cancel gives it up. With --json it prints each step.
    """
    if (to is not None) == cancel:
        raise click.UsageError("name the node with --to NODE, or cancel the move with --cancel")
    if to is None:
        cancelled = Client(api).cancel_move(query_id, operator)
        tell(cancelled, json_, f"cancelled: {cancelled.operator} goes on at {cancelled.node}")
        return
    try:
        _move(Client(api), query_id, operator, to, how, json_=json_)
    except KeyboardInterrupt:
        err().print(f"[dim]{escape(interrupted_text(query_id, operator))}[/]")
        raise


def _move(client: Client, query_id: str, operator: str, to: str, how: str, *, json_: bool) -> None:
    with closing(MoveSteps()) as steps:
        for event in client.move_operator(query_id, operator, to, how):
            if json_:
                print_json(event)
            elif isinstance(event, model.Moved):
                steps.close()
                click.echo(moved_text(event))
            else:
                steps.show(step_text(event))


def interrupted_text(query_id: str, operator: str) -> str:
    """Return that the move goes on, and the commands to watch and cancel it."""
    return (
        f"interrupted: the move goes on if it has begun; to watch it: sbon query show {query_id}; "
        f"to give it up: sbon query migrate {query_id} {operator} --cancel"
    )


def moved_text(event: model.Moved) -> str:
    """Return ``q-1.b0 runs at paris: 1.0 kB of state copied, 0.25 s without rows``."""
    text = f"{event.operator} runs at {event.node}: {bytes_text(event.copied_bytes)} of state copied"
    return text if event.pause_ms is None else f"{text}, {event.pause_ms / 1000:.2f} s without rows"


def step_text(event: model.Moving | model.MoveInfo) -> str:
    """Return ``copying: 512 B of 1.0 kB`` or ``following: 3 frames behind``."""
    progress = event.progress
    if event.step == "copying" and progress.total_bytes:
        return f"copying: {bytes_text(progress.copied_bytes)} of {bytes_text(progress.total_bytes)}"
    if event.step == "following":
        return f"following: {counted(progress.frames_behind, 'frame')} behind"
    return event.step


class MoveSteps:
    """The present step on stderr: a line that changes on a terminal, elsewhere a line for each step."""

    def __init__(self) -> None:
        self._console = err()
        self._status: Status | None = None
        self._step = ""

    def show(self, text: str) -> None:
        if not self._console.is_terminal:
            step, before = text.partition(":")[0], self._step
            self._step = step
            if step != before:
                self._console.print(f"[dim]{escape(text)}[/]")
        elif self._status is None:
            self._status = self._console.status(escape(text))
            self._status.start()
        else:
            self._status.update(escape(text))

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


# -- Further sinks of a query -----------------------------------------------------------------------------------------


@query.group(cls=SuggestingGroup)
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
    spec = model.SinkSpec() if to == "follow:" else sink_of(to, format_, options)
    added = Client(api).add_sink(query_id, model.SinkRequest(sink=spec, consumer=consumer, begin=begin or ""))
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
def list_sinks(api: str, query_id: str, json_: bool) -> None:
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
        [(one.id, one.node, _sink_target(one), _sink_state(one), one.rows, begins(one)) for one in sinks_of(info)],
    )


def _sink_state(one: SinkInfo) -> str:
    """Return the state of a sink, with the reason of a failure, or why it is paused."""
    paused = one.delivery.state if one.delivery is not None and one.state == states.RUNNING else one.state
    return f"{paused}: {one.reason}" if one.reason else paused


def _sink_target(one: SinkInfo) -> str:
    if one.temporary:
        return "a follower"
    options = one.sink.options
    parts = (one.sink.kind, options.get("url") or options.get("path"), options.get("table"))
    return " ".join(str(part) for part in parts if part)
