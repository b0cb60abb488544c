"""Statements of a text, split at semicolons outside strings, quoted names and comments. Pure."""

import re
from typing import NamedTuple

_PIECE = re.compile(
    r"""(?P<comment>--[^\n]*)|(?P<block>/\*)|(?P<raw>(?<![A-Za-z0-9_])[rR](?:'[^']*'?|"[^"]*"?))"""
    r"""|(?P<string>'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?)|(?P<quoted>`(?:[^`]|``)*`?)|(?P<end>;)|(?P<other>[A-Za-z0-9_]+|.)""",
    re.VERBOSE | re.DOTALL,
)


class Statement(NamedTuple):
    """A statement. ``text`` is as written, without its semicolon; ``line`` and ``column`` (from 1) are its position."""

    text: str
    line: int = 1
    column: int = 1


def split(text: str) -> tuple[list[Statement], Statement]:
    """Return the ended statements, without empty ones, and the remaining text; blank if none remains."""
    statements: list[Statement] = []
    start = at = 0
    while at < len(text):
        token = _PIECE.match(text, at)
        assert token is not None
        if token.lastgroup == "end":
            _add(statements, text, start, at)
            start = token.end()
        at = _after_comment(text, at) if token.lastgroup == "block" else token.end()
    rest = _statement(text, start, len(text))
    return statements, rest if _says_something(rest.text) else Statement("")


def complete(text: str) -> bool:
    """Whether the text is complete: ended by a semicolon, a word for the shell itself, or blank."""
    return is_word(text) or not split(text)[1].text


def is_word(text: str) -> bool:
    """Whether it is for the shell itself, and needs no semicolon: ``\\help``, ``quit``."""
    stripped = text.strip()
    return stripped.startswith("\\") or stripped.lower() in ("exit", "quit", "help")


def blanked(text: str) -> str:
    """Return the text with spaces in place of its comments, so that offsets stay."""
    blanks: list[str] = []
    at = 0
    while at < len(text):
        token = _PIECE.match(text, at)
        assert token is not None
        end = _after_comment(text, at) if token.lastgroup == "block" else token.end()
        comment = token.lastgroup in ("comment", "block")
        blanks.append(re.sub(r"[^\n]", " ", text[at:end]) if comment else text[at:end])
        at = end
    return "".join(blanks)


def _after_comment(text: str, start: int) -> int:
    """Skip a comment with its nested comments."""
    depth = 0
    for bracket in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if bracket.group() == "/*" else -1
        if depth == 0:
            return start + bracket.end()
    return len(text)


def _add(statements: list[Statement], text: str, start: int, end: int) -> None:
    statement = _statement(text, start, end)
    if _says_something(statement.text):
        statements.append(statement)


def _statement(text: str, start: int, end: int) -> Statement:
    while start < end and text[start].isspace():
        start += 1
    return Statement(text[start:end].rstrip(), text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))


def _says_something(text: str) -> bool:
    return bool(blanked(text).strip())
