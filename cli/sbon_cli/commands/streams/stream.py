"""``sbon stream``: streams and their sources."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import click
import msgspec
from click.core import ParameterSource
from rich.markup import escape

from sbon import SbonError, endpoints
from sbon.model import QueryInfo, SourceDeclaration, StreamDeclaration, StreamInfo, ViewDeclaration
from sbon.states import LIVE
from sbon_cli.client import Client
from sbon_cli.commands.queries.durability import show_source_backups
from sbon_cli.commands.queries.query import print_unanswered
from sbon_cli.commands.queries.sink_urls import options_of
from sbon_cli.commands.queries.submit import submitted
from sbon_cli.commands.streams.push import push
from sbon_cli.options.names import NODE, STREAM
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.options.types import duration_of, milliseconds_of
from sbon_cli.terminal.output import asks_node, bytes_text, print_records, print_table, reports_errors, say, tell
from sbon_cli.terminal.reading import text_of
from sbon_node.base.validation_messages import in_plain_words
from sbon_node.model.schema import parse_schema
from sbon_node.model.times import utc_text
from sbon_protocol.api.durability import LOCAL, SourceDurability

D = TypeVar("D", bound=msgspec.Struct)

NAMES = "NAME: lower case letters, digits and _ are allowed, at most 63, a letter first"


@click.group(cls=SuggestingGroup)
def stream() -> None:
    """Creates, fills, lists and drops streams."""


def _not_blank(context: click.Context, option: click.Parameter, text: str) -> str:
    if option.name and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT and not text.strip():
        raise click.BadParameter("it is empty")
    return text


@stream.command()
@click.argument("name")
@click.option("--schema", default="", metavar='"ts timestamp, x double"|@FILE|-', help="Columns with Spark SQL types.")
@click.option("--event-time", default="", metavar="COLUMN", help="The column with a row's event time.")
@click.option("--delay", default="0s", show_default=True, help="Longest delay of a row behind the newest one: 500ms, 10s, 5m.")
@click.option(
    "--view", "sql", default="", callback=_not_blank, metavar='"SELECT ..."|@FILE|-', help="Create a view: a name for this query."
)
@click.option(
    "--as",
    "result",
    default="",
    callback=_not_blank,
    metavar='"SELECT ..."|@FILE|-',
    help="Run this query; its result is the stream.",
)
@click.option("--comment", default="", help="A comment.")
@asks_node
def create(
    api: str, name: str, schema: str, event_time: str, delay: str, sql: str, result: str, comment: str, json_: bool
) -> None:
    """Declares the stream NAME; attach sources to it next. With --view, NAME stands for a query, and is read as a stream is.

    With --as, a query runs whose result is the stream; sbon submit --to stream:NAME does the same with all options.
    """
    if (sql or result) and (schema or event_time or delay != "0s"):
        reason = "take columns and event time from their query: leave out --schema, --event-time and --delay"
        raise click.UsageError(f"--view and --as {reason}")
    if sql and result:
        raise click.UsageError("--view gives a query a name, and --as runs it: one of them, please")
    if result:
        if comment:
            raise click.UsageError("--as takes no comment")
        if not endpoints.STREAM_NAME.fullmatch(name):
            raise click.UsageError(NAMES)
        info = submitted(Client(api), endpoints.result_of(name, text_of(result, "--as")), quiet=True)
        tell(info, json_, f"{name} created: the result of {info.id} at {info.consumer}")
        return
    if sql:
        fields = {"name": name, "sql": text_of(sql, "--view"), "comment": comment}
        view = _converted(fields, ViewDeclaration, {"name": NAMES, "sql": "--view"})
        tell(Client(api).create_view(view), json_, f"{name} created")
        return
    if not schema or not event_time:
        raise click.UsageError(f"{'--event-time' if schema else '--schema'} is missing; or --view, or --as")
    columns, delay_ms = parse_schema(text_of(schema, "--schema").strip()), milliseconds_of(delay, "--delay")
    declaration = _converted(
        {"name": name, "schema": columns, "event_time": event_time, "delay_ms": delay_ms, "comment": comment},
        StreamDeclaration,
        {"name": NAMES, "event_time": "--event-time", "delay_ms": "--delay, in milliseconds"},
    )
    tell(Client(api).create_stream(declaration), json_, f"{name} created")


@stream.command()
@click.argument("stream_name", type=STREAM, metavar="STREAM")
@click.option("--node", "node_name", default="", type=NODE, help="The source's node; by default the node asked.")
@click.option("--name", default="", help="Name of the source among the stream's; by default the node's.")
@click.option("--connector", default="", help="file, tail, http, mqtt, generator or hostmetrics; see docs/connectors.md.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the connector; may be repeated.")
@click.option(
    "--file",
    "path",
    metavar="PATH",
    help="Short for --connector file --option path=PATH, on the source's node; a relative PATH is made absolute from here.",
)
@click.option("--format", "format_", metavar="FORMAT", help="Format of --file: csv, ndjson or parquet; by default its extension.")
@click.option(
    "--replay", type=float, metavar="SPEED", help="Replay --file at this multiple of event time; by default at full speed."
)
@click.option("--generator", is_flag=True, help="Short for --connector generator.")
@click.option(
    "--rate",
    type=float,
    metavar="ROWS_S",
    help="Rows a second that --generator makes, or that other sources are expected to have.",
)
@click.option(
    "--durability",
    type=click.Choice(get_args(SourceDurability)),
    default=LOCAL,
    show_default=True,
    help="replicated: another node stores each row before it is confirmed, and goes on with the source if its node is lost.",
)
@asks_node
def attach(
    api: str, /, stream_name: str, node_name: str, name: str, options: tuple[str, ...], durability: str, json_: bool, **short: Any
) -> None:
    """Attaches a physical source to STREAM, at any node; a query over the stream gets a branch for each source."""
    connector, chosen = connector_of(options, **short)
    client = Client(api)
    at = node_name or client.status().name
    fields = {"stream": stream_name, "name": name or at, "node": at, "connector": connector, "options": chosen}
    fields |= {"durability": durability} | ({} if short["rate"] is None else {"rows_s": short["rate"]})
    source = _converted(fields, SourceDeclaration, {"rows_s": "--rate", "stream": "STREAM", "node": "--node", "name": "--name"})
    tell(client.attach_source(source), json_, f"{source.name} attached to {stream_name} at {at}")


@stream.command()
@click.argument("stream_name", type=STREAM, metavar="STREAM")
@click.option("--node", "node_name", default="", type=NODE, help="The node of the source, if it has only one of the stream.")
@click.option("--name", default="", help="The name of the source.")
@asks_node
def detach(api: str, stream_name: str, node_name: str, name: str, json_: bool) -> None:
    """Takes a source away from STREAM, with what it keeps. Refused while a query reads the stream.

    Without --node and --name it is the source at the node asked.
    """
    client = Client(api)
    source = source_of(client.stream(stream_name), name, node_name or ("" if name else client.status().name))
    tell(client.detach_source(stream_name, source), json_, f"{source} detached from {stream_name}")


def source_of(info: StreamInfo, name: str, node: str) -> str:
    """Return the single source of that name, at that node; an empty name or node means any."""
    stream, sources = info.entry.declaration.name, info.entry.sources
    names = [s.name for s in sources if (not name or s.name == name) and (not node or s.node == node)]
    if len(names) == 1:
        return names[0]
    description = " ".join(part for part in (repr(name) if name else "", f"at {node}" if node else "") if part)
    if names:
        hint = f"name one: --name {' or '.join(names)}"
        raise SbonError("ambiguous-source", f"{stream} has {len(names)} sources {description}", hint=hint)
    known = ", ".join(f"{s.name} at {s.node}" for s in sources) or "none"
    raise SbonError("unknown-source", f"{stream} has no source {description}", hint=f"there is {known}")


@stream.command("list")
@asks_node
def list_(api: str, json_: bool) -> None:
    """Lists the streams of the cluster."""
    tell(Client(api).streams(), json_, show_streams)


def show_streams(streams: Sequence[StreamInfo]) -> None:
    """Print the streams as a table."""
    print_records(
        (
            {
                "stream": s.entry.declaration.name,
                "columns": ", ".join(c.name for c in s.entry.declaration.schema),
                "event time": s.entry.declaration.event_time,
                "delay ms": s.entry.declaration.delay_ms,
                "sources": "a view" if s.entry.declaration.sql else ", ".join(f"{x.name}@{x.node}" for x in s.entry.sources),
            }
            for s in streams
        ),
        empty="no streams",
    )


@stream.command()
@click.argument("name", type=STREAM, metavar="STREAM")
@click.option("--upstream", is_flag=True, help="Show where it comes from: queries, their streams, and sources.")
@click.option("--downstream", is_flag=True, help="Show the live queries that read it, and what reads their results.")
@asks_node
def show(api: str, name: str, upstream: bool, downstream: bool, json_: bool) -> None:
    """Shows a stream's columns and its sources with their counts, or its lineage."""
    client = Client(api)
    info = client.stream(name)
    if not (upstream or downstream):
        tell(info, json_, show_stream)
        return
    queries = client.queries()
    lineage = Lineage(client.streams(), queries)
    chosen = {"upstream": lineage.upstream(name)} if upstream else {}
    chosen |= {"downstream": lineage.downstream(name)} if downstream else {}
    records = {direction: [line._asdict() for line in lines] for direction, lines in chosen.items()}
    tell(records, json_, lambda records: _show_lineage(name, chosen))
    print_unanswered(queries)


def _show_lineage(name: str, chosen: Mapping[str, Sequence[Line]]) -> None:
    for direction, lines in chosen.items():
        say(f"[bold]{name}[/] {direction}" + ("" if lines else ": nothing"))
        for line in lines:
            say(f"{'  ' * line.depth}{line.kind} [bold]{escape(line.name)}[/] {escape(line.detail)}".rstrip())


def show_stream(info: StreamInfo) -> None:
    """Print a stream with its columns and sources."""
    declaration = info.entry.declaration
    if declaration.sql:
        say(f"[bold]{declaration.name}[/] is a view of {declaration.comment}")
    else:
        delay = duration_of(declaration.delay_ms)
        say(f"[bold]{declaration.name}[/] by {declaration.event_time}, delay {delay} {declaration.comment}")
    print_table(("column", "type"), [(c.name, c.type) for c in declaration.schema])
    say()
    if declaration.sql:
        print(declaration.sql)
        return
    print_records(
        (
            {
                "source": s.source.name,
                "node": s.source.node,
                "connector": s.source.connector,
                "state": s.state,
                "rows": s.rows,
                "bytes": bytes_text(s.bytes),
                "rows/s": s.rows_s,
                "watermark": utc_text(s.watermark_ms) if s.watermark_ms is not None else "-",
                "late": s.late,
                "bad": s.bad,
                "too large": s.too_large,
                "dropped": s.dropped,
            }
            for s in info.sources
        ),
        empty="no sources: sbon stream attach",
    )
    show_source_backups(info.sources)
    for s in info.sources:
        if s.bad + s.too_large and s.dead_letters:
            say(f"rows of {s.source.name} that could not be read, with their lines, at {s.source.node}: {s.dead_letters}")


@stream.command()
@click.argument("name", type=STREAM, metavar="STREAM")
@click.pass_obj
@reports_errors
def drop(api: str, name: str) -> None:
    """Drops a stream with its sources and what they keep."""
    Client(api).drop_stream(name)
    click.echo(f"{name} dropped")


stream.add_command(push)


def _converted(fields: dict[str, Any], kind: type[D], flags: dict[str, str]) -> D:
    """Return a declaration; a usage error names the flag of a field that is not allowed."""
    try:
        return msgspec.convert(fields, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        field, message = in_plain_words(error)
        raise click.UsageError(f"{flags.get(field, field)}: {message}" if field else message) from error


def connector_of(
    options: tuple[str, ...],
    *,
    connector: str,
    path: str | None,
    format_: str | None,
    replay: float | None,
    generator: bool,
    rate: float | None,
) -> tuple[str, dict[str, Any]]:
    """Return the connector and its options by the flags; raise a usage error for contradictions."""
    named = {"file": path is not None, "generator": generator} | ({connector: True} if connector else {})
    connectors = [name for name, is_chosen in named.items() if is_chosen]
    if len(connectors) != 1:
        raise click.UsageError("name one source: --file PATH, --generator, or --connector NAME with --option KEY=VALUE")
    if connectors[0] != "file" and (format_ or replay is not None):
        raise click.UsageError("--format and --replay are for --file")
    short = {"path": None if path is None else str(Path(path).absolute()), "format": format_ or None, "replay": replay}
    short |= {"rate": rate} if connectors[0] == "generator" else {}
    return connectors[0], options_of(options) | {name: value for name, value in short.items() if value is not None}


# -- Where a stream comes from, and what reads it: through views, and queries whose results are streams ---------------


VIEW = "view"


class Line(NamedTuple):
    """A stream, view or query, ``depth`` steps from the stream that is shown."""

    depth: int
    kind: str
    name: str
    detail: str = ""


class Lineage:
    """The streams of an overlay, and its queries: those that make streams, and the live ones."""

    def __init__(self, streams: Iterable[StreamInfo], queries: Iterable[QueryInfo]) -> None:
        self._streams = {info.entry.declaration.name: info for info in streams}
        self._queries = {query.uid: query for query in queries}
        self._made = {uid: name for name, info in self._streams.items() if (uid := made_by(info))}

    def upstream(self, name: str) -> list[Line]:
        """Return the query that makes the stream, and what that reads; or its sources, or what the view reads."""
        return list(self._upstream(name, 1, {name}))

    def _upstream(self, name: str, depth: int, seen: set[str]) -> Iterator[Line]:
        info = self._streams.get(name)
        if info is None:
            return
        if info.entry.declaration.sql:
            yield from self._with_upstream(self._read_by(info), depth, seen)
            return
        query = self._queries.get(made_by(info))
        if query is None:
            for source in info.entry.sources:
                yield Line(depth, "source", source.name, f"{source.connector} at {source.node}")
            return
        yield _line(depth, query)
        yield from self._with_upstream(query.streams, depth + 1, seen)

    def _with_upstream(self, names: Iterable[str], depth: int, seen: set[str]) -> Iterator[Line]:
        for name in names:
            yield Line(depth, self._kind(name), name)
            if name not in seen:
                yield from self._upstream(name, depth + 1, seen | {name})

    def downstream(self, name: str) -> list[Line]:
        """Return the views and live queries that read the stream, and what reads their results."""
        return list(self._downstream(name, 1, {name}))

    def _downstream(self, name: str, depth: int, seen: set[str]) -> Iterator[Line]:
        for view, info in sorted(self._streams.items()):
            if name in self._read_by(info):
                yield Line(depth, VIEW, view)
                if view not in seen:
                    yield from self._downstream(view, depth + 1, seen | {view})
        for uid, query in sorted(self._queries.items()):
            if name not in query.streams or query.state not in LIVE:
                continue
            yield _line(depth, query)
            made = self._made.get(uid, "")
            if made:
                yield Line(depth + 1, "stream", made)
            if made and made not in seen:
                yield from self._downstream(made, depth + 2, seen | {made})

    def _kind(self, name: str) -> str:
        info = self._streams.get(name)
        return VIEW if info is not None and info.entry.declaration.sql else "stream"

    def _read_by(self, info: StreamInfo) -> list[str]:
        """Return the streams and views that a view reads, by name; none for a stream."""
        names = _tables(info.entry.declaration.sql) if info.entry.declaration.sql else set()
        return sorted({name for table in names for name in (table, table.lower()) if name in self._streams})


def _tables(sql: str) -> set[str]:
    sqlglot: Any = importlib.import_module("sqlglot")  # Slow to load, and few lineages have views.
    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
    except sqlglot.errors.SqlglotError:
        return set()
    return {table.name for table in tree.find_all(sqlglot.exp.Table)}


def made_by(info: StreamInfo) -> str:
    """Return the uid of the query whose result the stream is; empty if it is none's."""
    made: Sequence[Mapping[str, object]] = [one.options for one in info.entry.sources if one.connector == "query"]
    return str(made[0].get("query", "")) if made else ""


def _line(depth: int, query: QueryInfo) -> Line:
    return Line(depth, "query", query.id, f"{query.state}, to {query.sink.kind} at {query.consumer}")
