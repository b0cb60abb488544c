"""``sbon sql``: a shell for queries, on a terminal or from a file."""

import sys
from typing import Any

import click

from sbon_cli.client import Client
from sbon_cli.commands.queries.query_flags import query_options
from sbon_cli.shell.run import Runner
from sbon_cli.shell.statements import Statement, is_word, split
from sbon_cli.terminal.output import asks_node, counted, err
from sbon_cli.terminal.reading import text_in


@click.command()
@click.option("-f", "--file", metavar="FILE|-", help="Run the statements of a file, or of standard input, one after another.")
@click.option("-c", "--command", metavar="SQL", help="Run these statements.")
@query_options("decompose", "join_window_ms", "on_error", "state_provider", "durability", "begin", "reuse")
@asks_node
def sql(api: str, file: str | None, command: str | None, fields: dict[str, Any], json_: bool) -> None:
    """A shell for queries: it prints rows as they arrive. Ctrl-C stops the query and not the shell; \\help explains the rest.

    On a terminal it has history and completion. Otherwise it runs the statements of standard input, of a file or of -c one after
    another, until one fails; its exit code is that of the command. Statements end with a semicolon; the last may omit it.
    """
    if file is not None and command is not None:
        raise click.UsageError("give either --file or --command")
    client = Client(api)
    if file is None and command is None and sys.stdin.isatty():
        from sbon_cli.shell.prompt import Known, converse

        status = client.status()
        greeting = f"at {status.name} of {status.cluster}, {counted(status.members, 'member')}; \\help for help"
        err().print(greeting, style="dim", markup=False)
        converse(Runner(client, fields, json_=json_), Known(api))
        return
    text = command if command is not None else text_in(file or "-", "--file")
    runner = Runner(client, fields, json_=json_, file=file if file not in (None, "-") else "")
    for statement in statements_of(text):
        code = runner.run(statement)
        if code is None:
            return
        if code:
            sys.exit(code)


def statements_of(text: str) -> list[Statement]:
    """Return the statements, with a last statement that has no semicolon. Shell commands have lines of their own."""
    statements: list[Statement] = []
    lines = list(text.split("\n"))
    for number, line in enumerate(lines):
        if is_word(line) and not split("\n".join(lines[:number]))[1].text:
            lines[number] = line.rstrip().rstrip(";") + ";"
    ended, rest = split("\n".join(lines))
    statements += ended
    return [*statements, rest] if rest.text else statements
