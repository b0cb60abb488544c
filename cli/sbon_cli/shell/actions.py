"""Actions of the shell's statements. Pure."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from sbon import SbonError
from sbon_cli.shell.declarations import Declaration, Positions, declaration_of, position_at
from sbon_cli.shell.statements import blanked

HELP = """\
SELECT ...;                        runs a query: its rows as they arrive; Ctrl-C stops it
EXPLAIN SELECT ...;                its plan: what would run where, what would flow
EXPLAIN PLACEMENT SELECT ...;      why its operators would go there, and what else there is
EXPLAIN [PLACEMENT] QUERY name;    the same of a query that runs
SHOW STREAMS | QUERIES | MEMBERS;  what there is
SHOW STREAM name; SHOW QUERY name; one of them: columns and sources; plan, operators and how far it is
DESCRIBE stream;                   as SHOW STREAM
CREATE STREAM name (column type, ...) EVENT TIME column [DELAY '10 seconds'] [COMMENT 'text'];
CREATE STREAM name AS SELECT ...;  runs a query whose result is a stream
CREATE VIEW name AS SELECT ...;    gives a query a name, to be read as a stream; CREATE OR REPLACE VIEW
ATTACH FILE 'path' | connector TO stream [AT node] [AS name] [WITH (option = value, ...)];
DETACH name FROM stream;           takes a source away; DETACH FROM stream [AT node]; the one at a node
DROP STREAM name; DROP VIEW name;  a stream with its sources and what they keep; a view; IF [NOT] EXISTS before a name
USAGE query;                       what it has cost the network
STOP query;                        ends it
\\help, \\quit                       this; out, as Ctrl-D

A statement may take several lines; a semicolon ends it. Tab completes; the arrows bring back what was typed before."""


class ShowQuery(NamedTuple):
    query: str


Shown = Literal["STREAMS", "QUERIES", "MEMBERS"]
SHOWN: tuple[Shown, ...] = ("STREAMS", "QUERIES", "MEMBERS")


class Run(NamedTuple):
    """Run a query with this text for the node."""

    sql: str


class Explain(NamedTuple):
    """Explain the plan or the placement of ``sql``, or of a running query."""

    sql: str
    query: str
    placement: bool


class Show(NamedTuple):
    what: Shown


class Describe(NamedTuple):
    stream: str


class ShowUsage(NamedTuple):
    query: str


class Stop(NamedTuple):
    query: str


class Help(NamedTuple):
    pass


class Quit(NamedTuple):
    pass


Action = Run | Explain | Show | ShowQuery | Describe | ShowUsage | Stop | Declaration | Help | Quit

_NAME = r"\s+([A-Za-z0-9_-]+|`[^`]+`)\s*"


def action_of(text: str) -> Action:
    """Parse a statement; raise :class:`SbonError` ``bad-statement`` if only its beginning is one of the shell.

    The text for the node has spaces in place of the preceding words, so that lines and columns stay those of ``text``.
    """
    clean = blanked(text)
    words = clean.split()
    first = words[0].lower().lstrip("\\") if words else ""
    if clean.strip().startswith("\\") or (len(words) == 1 and first in ("help", "quit", "exit")):
        return _word(first)
    if first == "explain":
        return _explain(clean)
    if (declared := declaration_of(clean)) is not None:
        return declared
    if first == "show":
        with_name = re.fullmatch(rf"\s*show\s+(stream|query){_NAME}", clean, re.IGNORECASE)
        if with_name is not None:
            return (Describe if with_name[1].lower() == "stream" else ShowQuery)(with_name[2].strip("`"))
        shown_kind = words[1].upper() if len(words) == 2 else ""
        for shown in SHOWN:
            if shown == shown_kind:
                return Show(shown)
        raise _bad(
            "SHOW what?",
            clean,
            len(clean.rstrip()) if len(words) == 1 else clean.find(words[1]),
            "SHOW STREAMS, QUERIES, MEMBERS, STREAM name or QUERY name",
        )
    for word, kind, of in (
        ("describe", Describe, "STREAM"),
        ("desc", Describe, "STREAM"),
        ("usage", ShowUsage, "QUERY"),
        ("stop", Stop, "QUERY"),
    ):
        if first == word:
            match = re.fullmatch(rf"\s*{word}(?:\s+(?:stream|query))?{_NAME}", clean, re.IGNORECASE)
            if match is None:
                at = clean.find(words[1]) if len(words) > 1 else len(clean.rstrip())
                raise _bad(f"{word.upper()} takes one name", clean, at, f"{word.upper()} {of}")
            return kind(match[1].strip("`"))
    return Run(text)


def positions_of(action: Action, text: str) -> Positions:
    """Return the position of the name that a statement ends with, by the field under which the node knows it."""
    query = action.query if isinstance(action, Explain | ShowQuery | ShowUsage | Stop) else ""
    if not query and not isinstance(action, Describe):
        return {}
    name = re.search(r"[^\s;]+\s*\Z", blanked(text))
    assert name is not None
    return {"query" if query else "stream": position_at(text, name.start())}


def _word(word: str) -> Action:
    if word in ("q", "quit", "exit"):
        return Quit()
    if word in ("h", "help", "?"):
        return Help()
    raise SbonError("bad-statement", f"there is no \\{word}", hint="\\help lists the commands")


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
    return SbonError("bad-statement", message, where=position_at(text, at), hint=f"write {hint}")
