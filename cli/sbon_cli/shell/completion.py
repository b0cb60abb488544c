"""Completion of a statement: keywords, functions, streams, columns, queries. Pure, except the injected names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from sbon_cli.shell.actions import SHOWN
from sbon_cli.shell.declarations import CONNECTORS
from sbon_cli.shell.statements import blanked
from sbon_node.model.schema import TYPES
from sbon_node.sql.checks.functions import ALLOWED, ALLOWED_AGGREGATES

STATEMENTS = (
    *("SELECT", "WITH", "EXPLAIN", "SHOW", "DESCRIBE", "USAGE", "STOP"),
    *("CREATE STREAM", "CREATE VIEW", "ATTACH", "DETACH", "DROP STREAM", "DROP VIEW"),
)
KEYWORDS = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "AS", "AND", "OR", "NOT", "IN", "EXISTS", "BETWEEN", "LIKE"),
    *("IS NULL", "IS NOT NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST(", "INTERVAL", "UNION ALL", "TRUE", "FALSE", "NULL"),
    *("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "ON", "window(", "session_window(", "date_trunc("),
)
_WORD = re.compile(r"[A-Za-z0-9_-]*\Z")
_RELATIONS = re.compile(
    r"\b(?:from|join)\s+`?(\w+)`?(?:\s+(?:as\s+)?(?!on\b|where\b|group\b|join\b|left\b|right\b|full\b)(\w+))?", re.I
)


class Names(Protocol):
    def streams(self) -> Mapping[str, tuple[str, ...]]: ...

    def sources(self) -> tuple[str, ...]:
        """Return names of sources of any stream."""
        ...

    def members(self) -> tuple[str, ...]: ...

    def queries(self) -> tuple[str, ...]: ...

    def live_queries(self) -> tuple[str, ...]:
        """Return the queries that can be stopped."""
        ...


def word_before(text: str) -> str:
    """Return the unfinished word at the end of the text; empty at the beginning of a word."""
    match = _WORD.search(text)
    return match[0] if match else ""


def candidates(before: str, text: str, names: Names) -> list[str]:
    """Return replacements for the last word of ``before``, in order; ``text`` is the statement to its end."""
    word = word_before(before)
    left = blanked(before[: len(before) - len(word)])
    if _in_text(left):
        return []
    last = left.split()[-1].lower() if left.split() else ""
    names_offered: Iterable[str]
    if left.endswith("\\"):
        names_offered = ("help", "quit")
    elif left.endswith("."):
        names_offered = _columns_of(word_before(left[:-1]), text, names)
    elif not last:
        names_offered = STATEMENTS
    elif (declared := _declared(left.lower().split(), names)) is not None:
        names_offered = declared
    elif last == "explain":
        names_offered = ("SELECT", "WITH", "PLACEMENT", "QUERY")
    elif last == "placement":
        names_offered = ("SELECT", "WITH", "QUERY")
    elif last == "show":
        names_offered = (*SHOWN, "STREAM", "QUERY")
    elif left.lower().split()[-2:] == ["show", "stream"] or last in ("describe", "desc", "from", "join"):
        names_offered = names.streams()
    elif last == "stop" or left.lower().split()[-2:] == ["stop", "query"]:
        names_offered = names.live_queries()
    elif last in ("query", "usage"):
        names_offered = names.queries()
    else:
        names_offered = (
            *_columns_read(text, names),
            *KEYWORDS,
            *(f"{name}(" for name in sorted({*ALLOWED, *ALLOWED_AGGREGATES})),
        )
    return _cased(word, names_offered)


def _declared(words: list[str], names: Names) -> Iterable[str] | None:
    """Return candidates in statements that change streams, None in others; ``words`` are those before the current word."""
    first, last = words[0], words[-1]
    if first in ("create", "drop") and len(words) == 1:
        return ("STREAM", "VIEW")
    if first == "drop":
        return names.streams() if len(words) == 2 else ()
    if words[:2] == ["create", "view"]:
        return None if "as" in words else ("AS",) if len(words) > 2 else ()
    if first == "create":
        in_columns = "".join(words).count("(") > "".join(words).count(")")
        return (*TYPES, "decimal(") if in_columns else ("EVENT TIME", "DELAY", "COMMENT") if len(words) > 2 else ()
    if first not in ("attach", "detach"):
        return None
    if last == ("to" if first == "attach" else "from"):
        return names.streams()
    if last == "at":
        return names.members()
    if len(words) == 1:
        return CONNECTORS if first == "attach" else (*names.sources(), "FROM")
    if first == "detach":
        return ("FROM",) if "from" not in words else ("AT",)
    return ("TO",) if "to" not in words else ("AT", "AS", "WITH (")


def relations(text: str) -> dict[str, str]:
    """Return the streams read in the text, by their names there."""
    return {alias or name: name for name, alias in _RELATIONS.findall(blanked(text))}


def _columns_of(alias: str, text: str, names: Names) -> tuple[str, ...]:
    by_name = {name.lower(): stream for name, stream in relations(text).items()}
    return tuple(names.streams().get(by_name.get(alias.lower(), alias), ()))


def _columns_read(text: str, names: Names) -> list[str]:
    """Return the columns of the streams read; those of all streams if none is known yet."""
    known = names.streams()
    read = [stream for stream in relations(text).values() if stream in known]
    return sorted({column for stream in read or known for column in known[stream]})


def _cased(word: str, names: Iterable[str]) -> list[str]:
    """Return the words with this prefix; keywords in the case of the prefix."""
    lower = word.lower()
    matching = [name for name in names if name.lower().startswith(lower)]
    return list(dict.fromkeys(name.lower() if word and word.islower() and name.isupper() else name for name in matching))


def _in_text(left: str) -> bool:
    """Whether a string is open."""
    return len(re.findall(r"(?<!\\)'", left)) % 2 == 1
