"""What a statement asks for is done: asked of the node, shown, and its outcome told as an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sbon_cli.client import Client
from sbon_cli.explain import show_explanation
from sbon_cli.explain_placement import show_placement
from sbon_cli.follow import consumer_client
from sbon_cli.members import show_members
from sbon_cli.output import EXIT_INTERRUPTED, as_json, err, exit_code_of, print_json, say
from sbon_cli.query import show_bill, show_queries, tell_unanswered
from sbon_cli.rows import follow_to_the_end
from sbon_cli.shell import actions
from sbon_cli.shell.actions import HELP, Action, action_of
from sbon_cli.shell.carets import complain_at
from sbon_cli.shell.statements import Statement
from sbon_cli.stream import show_stream, show_streams
from sbon_cli.submit import submitted
from sbon_node.control.report import Question, Submission
from sbon_node.errors import SbonError


class Runner:
    """Runs statements at one node. ``wishes`` are the fields of a submission beside its text, ``file`` where they are from."""

    def __init__(self, client: Client, wishes: Mapping[str, Any], *, json_: bool, file: str = "") -> None:
        self._client, self._wishes, self._json, self._file = client, dict(wishes), as_json(json_), file

    def run(self, statement: Statement) -> int | None:
        """An exit code, 0 where all went well; None where the shell is to end. Errors are shown, not raised."""
        try:
            action = action_of(statement.text)
            return None if isinstance(action, actions.Quit) else self._do(action)
        except SbonError as error:
            complain_at(error, statement, self._file)
            return exit_code_of(error)
        except KeyboardInterrupt:
            err().print("[dim]given up[/]")
            return EXIT_INTERRUPTED

    def _do(self, action: Action) -> int:
        client = self._client
        match action:
            case actions.Run(sql=sql):
                return self._query(sql)
            case actions.Help():
                say(HELP)
            case actions.Explain():
                self._explain(action)
            case actions.Show(what="STREAMS"):
                self._tell(client.streams(), show_streams)
            case actions.Show(what="QUERIES"):
                queries = client.queries()
                self._tell(queries, show_queries)
                tell_unanswered(queries)
            case actions.Show():
                self._tell(client.members(), show_members)
            case actions.Describe(stream=stream):
                self._tell(client.stream(stream), show_stream)
            case actions.Charge(query=query):
                self._tell(client.bill(query), show_bill)
            case actions.Stop(query=query):
                info = client.stop_query(query)
                self._tell(info, lambda found: say(f"{found.id} {found.state}"))
        return 0

    def _query(self, sql: str) -> int:
        """Its rows as they arrive, until it is over; Ctrl-C stops it."""
        consumer_client(self._client, str(self._wishes.get("consumer", "")))
        info = submitted(self._client, Submission(sql=sql, **self._wishes))
        return follow_to_the_end(self._client, info, json_=self._json, stop_after=True)

    def _explain(self, asked: actions.Explain) -> None:
        client = self._client
        question = None if asked.query else Question(sql=asked.sql, **self._wishes)
        if asked.placement:
            placed = client.explain_query_placement(asked.query) if question is None else client.explain_placement(question)
            self._tell(placed, show_placement)
        else:
            planned = client.explain_query(asked.query) if question is None else client.explain(question)
            self._tell(planned, show_explanation)

    def _tell(self, found: Any, show: Any) -> None:
        if self._json:
            print_json(found)
        else:
            show(found)
