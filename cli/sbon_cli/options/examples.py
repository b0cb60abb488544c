"""The examples at the end of a command's help, from ``examples.toml``."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

import click

from sbon_cli.verbs import sections

OWN: dict[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def examples() -> dict[str, Sequence[str]]:
    """Return the examples of every command by its path."""
    return {**OWN, **{path: lines for section in sections() for path, lines in section.examples.items()}}


def with_examples(command: click.Command, name: str) -> click.Command:
    """Add the examples of the table to the help of the command, and of those under it."""
    lines = OWN.get(name) or examples().get(name, ())
    if lines:
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
    for below, subcommand in command.commands.items() if isinstance(command, click.Group) else ():
        with_examples(subcommand, f"{name} {below}")
    return command
