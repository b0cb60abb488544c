"""Execution of statements: request to the node, output, and exit code."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape

from sbon import SbonError, endpoints
from sbon.model import Explanation, PlacementExplanation, QuerySpec, StreamInfo, Submission
from sbon_cli.client import Client
from sbon_cli.commands.nodes.members import show_members
from sbon_cli.commands.queries.explain import show_explanation, show_placement
from sbon_cli.commands.queries.query import print_unanswered, show_queries, show_query, show_query_usage
from sbon_cli.commands.queries.rows import follow_to_the_end, tied
from sbon_cli.commands.queries.submit import submitted
from sbon_cli.commands.streams.stream import show_stream, show_streams, source_of
from sbon_cli.shell import actions
from sbon_cli.shell.actions import HELP, Action, Declaration, action_of, positions_of, with_position
from sbon_cli.shell.statements import Statement
from sbon_cli.terminal.output import EXIT_INTERRUPTED, err, exit_code_of, say, tell


class Runner:
    """Runner of statements at one node.

    ``fields`` are the fields of a submission beside its text; ``file``, if any, is the file that holds the statements.
    """

    def __init__(self, client: Client, fields: Mapping[str, Any], *, json_: bool, file: str = "") -> None:
        self._client, self._fields, self._json, self._file = client, dict(fields), json_, file

    def run(self, statement: Statement) -> int | None:
        """Return an exit code, 0 on success, or None to end the shell. Errors are shown, not raised."""
        try:
            action = action_of(statement.text)
            try:
                return self._do(action)
            except SbonError as error:
                raise with_position(error, positions_of(action, statement.text)) from error
        except SbonError as error:
            complain_at(error, statement, self._file)
            return exit_code_of(error)
        except KeyboardInterrupt:
            err().print("[dim]given up[/]")
            return EXIT_INTERRUPTED

    def _do(self, action: Action) -> int | None:
        client = self._client
        match action:
            case actions.Run(sql=sql):
                return self._query(sql)
            case actions.Quit():
                return None
            case actions.Help():
                say(HELP)
            case actions.Explain():
                self._explain(action)
            case actions.Show(what="STREAMS"):
                self._tell(client.streams(), show_streams)
            case actions.Show(what="QUERIES"):
                queries = client.queries()
                self._tell(queries, show_queries)
                print_unanswered(queries)
            case actions.Show():
                self._tell(client.members(), show_members)
            case actions.ShowQuery(query=query):
                self._tell(client.query(query), show_query)
            case actions.Describe(stream=stream):
                self._tell(client.stream(stream), show_stream)
            case actions.ShowUsage(query=query):
                self._tell(client.query_usage(query), show_query_usage)
            case actions.Stop(query=query):
                info = client.stop_query(query)
                self._tell(info, f"{info.id} {info.state}")
            case _:
                self._declare(action)
        return 0

    def _declare(self, action: Declaration) -> None:
        """Run a declaration; an error names the position of the part that it concerns."""
        client = self._client
        try:
            if isinstance(action, actions.Creation) and action.if_missing and self._exists(action.name):
                self._tell(client.stream(action.name), f"{action.name} exists already, and stays as it is")
                return
            match action:
                case actions.CreateStream(declaration=declaration):
                    self._tell(client.create_stream(declaration), f"{declaration.name} created")
                case actions.CreateResult(name=name, sql=sql):
                    result = submitted(client, endpoints.result_of(name, sql, **self._fields))
                    self._tell(result, f"{name} created: the result of {result.id} at {result.consumer}")
                case actions.CreateView(view=view):
                    done = "replaced" if view.replace and self._exists(view.name) else "created"
                    self._tell(client.create_view(view), f"{view.name} {done}")
                case actions.Attach():
                    options = {**action.options}
                    if action.connector == "file" and "path" in options:
                        options["path"] = str(Path(str(options["path"])).absolute())
                    source = action._replace(options=options).source(action.node or client.status().name)
                    self._tell(client.attach_source(source), f"{source.name} attached to {source.stream} at {source.node}")
                case actions.Detach(stream=stream, name=name, node=node):
                    at = node or ("" if name else client.status().name)
                    source_name = source_of(client.stream(stream), name, at)
                    self._tell(client.detach_source(stream, source_name), f"{source_name} detached from {stream}")
                case actions.DropStream(stream=stream, if_exists=True) if not self._exists(stream):
                    say(f"there is no {stream}")
                case actions.DropStream(stream=stream, view=view):
                    _check_kind(client.stream(stream), view=view)
                    client.drop_stream(stream)
                    say(f"{stream} dropped")
        except SbonError as error:
            raise with_position(error, action.positions) from error

    def _exists(self, name: str) -> bool:
        try:
            self._client.stream(name)
        except SbonError as error:
            if error.code != "unknown-stream":
                raise
            return False
        return True

    def _query(self, sql: str) -> int:
        """Show a query's rows as they arrive, until it is over; Ctrl-C stops it."""
        with tied(self._client, stops=True) as tie:
            info = submitted(self._client, Submission(sql=sql, **self._fields), tie=tie)
            return follow_to_the_end(self._client, info, tie, json_=self._json)

    def _explain(self, statement: actions.Explain) -> None:
        client, placement = self._client, statement.placement
        answer: Explanation | PlacementExplanation
        if statement.query:
            answer = (client.explain_query_placement if placement else client.explain_query)(statement.query)
        else:
            question = QuerySpec(sql=statement.sql, **self._fields)
            answer = client.explain_placement(question) if placement else client.explain(question)
        self._tell(answer, show_placement if placement else show_explanation)

    def _tell(self, answer: Any, show: Any) -> None:
        tell(answer, self._json, show)


def _check_kind(info: StreamInfo, *, view: bool) -> None:
    """Raise ``is-a-view`` or ``not-a-view`` for a statement that drops the other kind."""
    declaration = info.entry.declaration
    if view and not declaration.sql:
        hint = f"DROP STREAM {declaration.name} drops it with its sources and what they keep"
        raise SbonError("not-a-view", f"{declaration.name} is a stream, no view", hint=hint)
    if declaration.sql and not view:
        raise SbonError("is-a-view", f"{declaration.name} is a view, no stream", hint=f"DROP VIEW {declaration.name}")


# -- An error in SQL, with its line and a caret under the position ----------------------------------------------------

_PLACE = re.compile(r"line (\d+), column (\d+)")
MARGIN = 2


def complain_at(error: SbonError, statement: Statement, file: str = "") -> None:
    """Write the error to stderr; positions are those of the whole text, of ``file`` if given."""
    console = err()
    match = _PLACE.fullmatch(error.where)
    if match is None:
        where = ": ".join(part for part in (file, error.where) if part)
        console.print(f"[bold red]error[/]: {escape(f'{where}: ' if where else '')}{escape(error.message)}")
    else:
        line, column = int(match[1]), int(match[2])
        of_text = column + statement.column - 1 if line == 1 else column
        where = f"{f'{file}, ' if file else ''}line {statement.line + line - 1}, column {of_text}"
        console.print(f"[bold red]error[/]: {escape(where)}: {escape(error.message)}")
        for shown in pointed(statement.text, line, column, console.width - MARGIN):
            console.print(" " * MARGIN + escape(shown))
    for detail in error.details:
        console.print(f"  - {escape(detail)}")
    if error.hint:
        console.print(f"  [dim]hint:[/] {escape(error.hint)}")


def pointed(text: str, line: int, column: int, width: int) -> list[str]:
    """Return the line (from 1) with a caret under the column (from 1), cut to ``width``; empty without such a line."""
    lines = text.split("\n")
    if not 1 <= line <= len(lines):
        return []
    line_text = lines[line - 1].replace("\t", " ").rstrip()
    at = min(max(column - 1, 0), len(line_text))
    first = 0 if at < width - 1 else at - width // 2
    shown = line_text[first : first + width]
    return [shown, " " * (at - first) + "^"]
