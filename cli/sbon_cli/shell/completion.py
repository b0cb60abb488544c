"""What may come next in a statement: keywords, functions, streams, columns, queries. Pure, but for whom it asks what there is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from sbon_cli.shell.actions import SHOWN
from sbon_cli.shell.statements import blanked
from sbon_node.query.functions import ALLOWED, ALLOWED_AGGREGATES

STATEMENTS = ("SELECT", "WITH", "EXPLAIN", "SHOW", "DESCRIBE", "BILL", "STOP")
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

    def queries(self) -> tuple[str, ...]: ...


def word_before(text: str) -> str:
    """The word that is being typed at the end of the text; empty at the beginning of one."""
    match = _WORD.search(text)
    return match[0] if match else ""


def candidates(before: str, whole: str, names: Names) -> list[str]:
    """Words that may take the place of the one at the end of ``before``, in order; ``whole`` is the statement to its end."""
    word = word_before(before)
    left = blanked(before[: len(before) - len(word)])
    if _in_text(left):
        return []
    last = left.split()[-1].lower() if left.split() else ""
    found: Iterable[str]
    if left.endswith("\\"):
        found = ("help", "quit")
    elif left.endswith("."):
        found = _columns_of(word_before(left[:-1]), whole, names)
    elif not last:
        found = STATEMENTS
    elif last == "explain":
        found = ("SELECT", "WITH", "PLACEMENT", "QUERY")
    elif last == "placement":
        found = ("SELECT", "WITH", "QUERY")
    elif last == "show":
        found = SHOWN
    elif last in ("describe", "desc", "from", "join"):
        found = names.streams()
    elif last in ("query", "bill", "stop"):
        found = names.queries()
    else:
        found = (*_columns_read(whole, names), *KEYWORDS, *(f"{name}(" for name in sorted({*ALLOWED, *ALLOWED_AGGREGATES})))
    return _cased(word, found)


def relations(text: str) -> dict[str, str]:
    """Streams read in the text, by the names they have there."""
    return {alias or name: name for name, alias in _RELATIONS.findall(blanked(text))}


def _columns_of(alias: str, whole: str, names: Names) -> tuple[str, ...]:
    by_name = {name.lower(): stream for name, stream in relations(whole).items()}
    return tuple(names.streams().get(by_name.get(alias.lower(), alias), ()))


def _columns_read(whole: str, names: Names) -> list[str]:
    """Of all streams, where none of those that are read is known yet."""
    known = names.streams()
    read = [stream for stream in relations(whole).values() if stream in known]
    return sorted({column for stream in read or known for column in known[stream]})


def _cased(word: str, found: Iterable[str]) -> list[str]:
    """Those that begin so; keywords in the case in which the word was begun."""
    lower = word.lower()
    matching = [one for one in found if one.lower().startswith(lower)]
    return list(dict.fromkeys(one.lower() if word and word.islower() and one.isupper() else one for one in matching))


def _in_text(left: str) -> bool:
    """Whether a string is open."""
    return len(re.findall(r"(?<!\\)'", left)) % 2 == 1
