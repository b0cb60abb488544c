"""Suggestions for misspelt SQL words where a text does not parse."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sbon_node.planning.sql.syntax.lexical import Token, refusal, words
from sbon_protocol.errors import SbonError

_WORDS = sorted(words("select from where group order having join union left right inner full cross limit between with"))
_ALIKE = 0.7
_NEVER = words("for as by on in or and not is end all")
"""Correct words that resemble others."""


_OPERATORS = {
    "~": "use RLIKE: name RLIKE 'a.*'",
    "**": "use pow(a, b)",
    "top": "a stream has no end, so it has no first rows: stop the query when there are rows enough",
    "session": "GROUP BY session_window(event time, '10 minutes')",
}
"""Words of other dialects, and Spark's equivalents."""


_ROWS_COME = "rows come from sources: sbon stream attach, or sbon stream push"
_ROWS_STAY = "rows of a stream never change; select others of them with WHERE or CASE"
_NO_PAUSE = "a query cannot be paused: sbon query stop ends it, and sbon submit begins another one"
_SHELL = "it is a statement of the shell sbon sql, not of a query; see also sbon stream and sbon query"
_STATEMENTS = {
    **dict.fromkeys(("insert", "load", "copy"), _ROWS_COME),
    **dict.fromkeys(("update", "delete", "merge", "truncate"), _ROWS_STAY),
    **dict.fromkeys(("pause", "resume", "suspend"), _NO_PAUSE),
    **dict.fromkeys(("create", "drop", "show", "describe", "desc", "explain", "attach", "detach", "stop", "usage"), _SHELL),
    "alter": "a stream keeps its columns: drop it and create it anew, or create a view of it",
    "replace": "CREATE OR REPLACE VIEW name AS SELECT ..., in sbon sql",
}
"""Statements of other databases and of the shell by their first words, and what to do instead."""


def instead_of_statement(word: str) -> str:
    """Return what to do instead of a statement that begins with ``word``."""
    return _STATEMENTS.get(word.lower(), "a query begins with SELECT")


def meant(word: str) -> str:
    """Return the SQL word that resembles this word. Empty if it is an SQL word itself, or resembles none."""
    lower = word.lower()
    if lower in _WORDS or lower in _NEVER:
        return ""
    near = difflib.get_close_matches(lower, _WORDS, n=1, cutoff=_ALIKE)
    return near[0].upper() if near else ""


def explained(error: SbonError, clean: str, tokens: Sequence[Token], start: int) -> SbonError:
    """Return a clearer error for a parser that stopped at ``start``. The wrong word is there, or before it."""
    at = next((number for number, token in enumerate(tokens) if token.start >= start), len(tokens))
    for number in (at, at - 1, at - 2):
        if 0 < number < len(tokens) and tokens[number].kind == "word" and (word := meant(tokens[number].text)):
            return misspelt(clean, tokens[number], word)
    words = [token.text.lower() for token in tokens[max(0, at - 2) : at + 1]]
    for near_word in (*words, "".join(words[:2])):
        if near_word in _OPERATORS:
            return SbonError(error.code, error.message, where=error.where, hint=_OPERATORS[near_word])
    return error


def misspelt(clean: str, token: Token, word: str) -> SbonError:
    return refusal("bad-sql", "not understood", clean, token.start, offending=token.text, hint=f"did you mean {word}?")


def instead_of(clean: str, tokens: Sequence[Token], word: str) -> SbonError | None:
    """Return the error for a missing word, if another word may stand for it."""
    first_token = next((token for token in tokens if token.kind == "word" and meant(token.text) == word), None)
    return misspelt(clean, first_token, word) if first_token is not None else None
