"""Input of commands: a file, or standard input for ``-``."""

import sys
from pathlib import Path

import click

STDIN = Path("/dev/stdin")


class ReadablePath(click.Path):
    """A path; ``-`` is standard input."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, allow_dash=True)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return STDIN if str(value) == "-" else Path(str(value))


def text_of(text: str, flag: str = "") -> str:
    """Return the text itself, that of ``@FILE``, or standard input for ``-``; raise a usage error."""
    return text_in(text.removeprefix("@"), flag) if text == "-" or text.startswith("@") else text


def text_in(file: str, flag: str = "") -> str:
    """Read a file, or standard input for ``-``; raise a usage error that names ``flag``."""
    if file == "-":
        return sys.stdin.read()
    if not file:
        raise click.UsageError(f"{f'{flag}: ' if flag else ''}no file is named after @")
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise click.UsageError(f"{f'{flag}: ' if flag else ''}{file} cannot be read: {reason}") from error
