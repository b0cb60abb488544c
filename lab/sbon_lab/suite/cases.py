"""The suite's queries: each a file in Spark's SQL, with DuckDB's beside it where that differs.

    -- what the query shows, in a sentence
    SELECT ...
    -- duckdb
    SELECT ...

A query that is to be refused has ``-- refused: code`` in place of DuckDB's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sbon_protocol.errors import SbonError

FOLDER = Path(__file__).parent / "queries"

_FILE = re.compile(
    r"-- (?P<says>.+)\n"
    r"(?P<sql>(?:(?!-- (?:duckdb|refused)\b).*\n)+)"
    r"(?:-- duckdb\n(?P<duckdb>(?:.*\n)+)|-- refused: (?P<code>[a-z-]+)\n)?\Z"
)


@dataclass(frozen=True, slots=True)
class Case:
    """A query: ``sql`` is Spark's, ``reference`` DuckDB's over tables of the same names; ``refused`` is the code, or empty."""

    name: str
    says: str
    sql: str
    reference: str
    refused: str = ""


OF_SPARK_ALONE = ("expr_", "filter_patterns", "window_statistics")
"""Prefixes of queries with Spark functions and casts, such as skewness, which DuckDB lacks or defines differently."""


def cases() -> list[Case]:
    """Return all queries that run, by name."""
    return [case for case in _all() if not case.refused]


def chosen(names: Sequence[str], where: str = "--queries") -> list[Case]:
    """Return the queries of these names; raise :class:`SbonError` ``unknown-suite-query``, with ``where`` in it."""
    known = {case.name: case for case in cases()}
    for name in names:
        if name not in known:
            raise SbonError("unknown-suite-query", f"the suite has no query {name!r}", where=where, hint=", ".join(known))
    return [known[name] for name in names]


def simulated() -> list[Case]:
    """Return the queries that the simulated engine, which uses DuckDB, evaluates as Spark does."""
    return [case for case in cases() if not case.name.startswith(OF_SPARK_ALONE)]


def refusals() -> list[Case]:
    """Return the rejected queries, each with its error code."""
    return [case for case in _all() if case.refused]


def _all() -> list[Case]:
    return [_read(file) for file in sorted(FOLDER.glob("*.sql"))]


def _read(file: Path) -> Case:
    match = _FILE.match(file.read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(f"{file}: not a comment, SQL, and then DuckDB's or a refusal")
    sql = match["sql"].strip()
    return Case(file.stem, match["says"], sql, (match["duckdb"] or sql).strip(), match["code"] or "")
