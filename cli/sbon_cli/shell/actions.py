"""What a statement of the shell asks for. Pure."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from sbon_cli.shell.statements import blanked
from sbon_node.errors import SbonError

HELP = """\
SELECT ...;                        runs a query: its rows as they arrive; Ctrl-C stops it
EXPLAIN SELECT ...;                its plan: what would run where, what would flow
EXPLAIN PLACEMENT SELECT ...;      why its operators would go there, and what else there is
EXPLAIN [PLACEMENT] QUERY name;    the same of a query that runs
SHOW STREAMS | QUERIES | MEMBERS;  what there is
DESCRIBE stream;                   columns and sources
BILL query;                        what it has cost the network
STOP query;                        ends it
\\help, \\quit                       this; out, as Ctrl-D

A statement may take several lines; a semicolon ends it. Tab completes; the arrows bring back what was typed before."""

Shown = Literal["STREAMS", "QUERIES", "MEMBERS"]
SHOWN: tuple[Shown, ...] = ("STREAMS", "QUERIES", "MEMBERS")


class Run(NamedTuple):
    """A query, as the node is to read it."""

    sql: str


class Explain(NamedTuple):
    """Of ``sql``, or of a query that runs; its plan, or its placement."""

    sql: str
    query: str
    placement: bool


class Show(NamedTuple):
    what: Shown


class Describe(NamedTuple):
    stream: str


class Charge(NamedTuple):
    query: str


class Stop(NamedTuple):
    query: str


class Help(NamedTuple):
    pass


class Quit(NamedTuple):
    pass


Action = Run | Explain | Show | Describe | Charge | Stop | Help | Quit

_NAME = r"\s+([A-Za-z0-9_-]+|`[^`]+`)\s*"


def action_of(text: str) -> Action:
    """Raises :class:`SbonError` ``bad-statement`` for what begins as a statement of the shell and does not go on so.

    What is sent to the node has spaces for what stood before it, so that lines and columns stay those of ``text``.
    """
    clean = blanked(text)
    words = clean.split()
    first = words[0].lower().lstrip("\\") if words else ""
    if clean.strip().startswith("\\") or (len(words) == 1 and first in ("help", "quit", "exit")):
        return _word(first)
    if first == "explain":
        return _explain(clean)
    if first == "show":
        what = words[1].upper() if len(words) == 2 else ""
        for shown in SHOWN:
            if shown == what:
                return Show(shown)
        raise _bad(
            "SHOW what?",
            clean,
            len(clean.rstrip()) if len(words) == 1 else clean.find(words[1]),
            "SHOW STREAMS, QUERIES or MEMBERS",
        )
    for word, kind, of in (
        ("describe", Describe, "STREAM"),
        ("desc", Describe, "STREAM"),
        ("bill", Charge, "QUERY"),
        ("stop", Stop, "QUERY"),
    ):
        if first == word:
            match = re.fullmatch(rf"\s*{word}(?:\s+(?:stream|query))?{_NAME}", clean, re.IGNORECASE)
            if match is None:
                at = clean.find(words[1]) if len(words) > 1 else len(clean.rstrip())
                raise _bad(f"{word.upper()} takes one name", clean, at, f"{word.upper()} {of}")
            return kind(match[1].strip("`"))
    return Run(text)


def _word(word: str) -> Action:
    if word in ("q", "quit", "exit"):
        return Quit()
    if word in ("h", "help", "?"):
        return Help()
    raise SbonError("bad-statement", f"there is no \\{word}", hint="\\help tells what there is")


def _explain(clean: str) -> Action:
    match = re.match(r"\s*explain(\s+placement)?(?:\s+query" + _NAME + r"\Z)?", clean, re.IGNORECASE)
    assert match is not None
    if match[2]:
        return Explain("", match[2].strip("`"), placement=bool(match[1]))
    rest = clean[match.end() :]
    if not rest.strip():
        raise _bad(
            "EXPLAIN what?", clean, len(clean.rstrip()), "EXPLAIN SELECT ..., EXPLAIN PLACEMENT SELECT ... or EXPLAIN QUERY name"
        )
    return Explain(re.sub(r"[^\n]", " ", clean[: match.end()]) + rest, "", placement=bool(match[1]))


def _bad(message: str, text: str, at: int, hint: str) -> SbonError:
    line = text.count("\n", 0, at) + 1
    where = f"line {line}, column {at - text.rfind(chr(10), 0, at)}"
    return SbonError("bad-statement", message, where=where, hint=f"write {hint}")
