"""Lines for a shell, parsed as the commands in them would be, down to their options, and not run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click

from sbon_cli.main import sbon


def invocations(line: str) -> Iterator[list[str]]:
    """The arguments of each ``sbon`` in a line for a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>;")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, "|"]:
        if word in ("|", ">", ">>", ";", "&&"):
            while words and "=" in words[0]:
                words.pop(0)
            if words[:1] == ["sbon"]:
                yield words[1:]
            words = []
        else:
            words.append(word)


def path_of(arguments: list[str]) -> str:
    context = sbon.make_context("sbon", list(arguments))
    path: list[str] = []
    command: click.Command = sbon
    while isinstance(command, click.Group) and (left := [*context._protected_args, *context.args]):
        name, below, rest = command.resolve_command(context, left)
        assert below is not None
        path.append(str(name))
        context, command = below.make_context(name, rest, parent=context), below
    return " ".join(path)
