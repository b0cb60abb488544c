"""Queries whose operators move, as Spark's SQL and as DuckDB's.

``due`` is the event time from which a row of the answer may come: once the sources have reached it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sbon_node.base import extras

DIGEST_LENGTH = 32
"""Length of a digest (MD5) that may replace a note in the rows to compare."""


@dataclass(frozen=True)
class Kind:
    """A query over ``inputs`` streams, with its answer in DuckDB.

    ``columns`` are the types of the answer's columns, and ``due`` is an expression over these columns, to which ``$delay`` is the
    delay that the streams allow.
    """

    sql: str
    answer: str
    columns: Mapping[str, str]
    due: str
    inputs: int = 1
    has_state: bool = True

    def of_streams(self, *streams: str) -> str:
        """Return the query over streams of these names."""
        return self.sql.format(**{f"in{view}": stream for view, stream in enumerate(streams)})

    @property
    def fragment(self) -> str:
        """The query as the fragment of a single operator."""
        return self.of_streams("in0", "in1")


_FILTER = "SELECT ts, n FROM {in0} WHERE n % 3 = 0"
_WINDOWS = "window(ts, '2 seconds')"
_BUCKET = "time_bucket(INTERVAL 2 SECONDS, ts)"
_SESSIONS = """SELECT min(ts) AS s, max(ts) + INTERVAL 1 SECOND AS e, k, count(*) AS c FROM (
SELECT ts, k, sum(new) OVER (PARTITION BY k ORDER BY ts) AS number FROM (
SELECT ts, k, coalesce(ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) > INTERVAL 1 SECOND, true)::int AS new FROM in0
)) GROUP BY number, k"""
_PAIRS = (
    "{{in0}} {side}JOIN {{in1}} ON {{in0}}.n = {{in1}}.n AND {{in1}}.ts BETWEEN {{in0}}.ts AND {{in0}}.ts + INTERVAL 3 SECONDS"
)
_JOINED = "SELECT {in0}.ts AS ts, {in0}.n AS n, {in0}.note AS note, {in1}.n AS other FROM "
_INNER, _LEFT = _JOINED + _PAIRS.format(side=""), _JOINED + _PAIRS.format(side="LEFT ")
_COUNTED = (
    "SELECT {start} AS s, k, count(*) AS c, count(other) AS found FROM"
    " (SELECT {{in0}}.ts AS ts, {{in0}}.k AS k, {{in1}}.n AS other FROM {pairs}) AS r GROUP BY {group}, k"
)
_CHAIN = _COUNTED.format(start="window.start", group=_WINDOWS, pairs=_PAIRS.format(side="LEFT "))
_CHAIN_ANSWER = _COUNTED.format(start=_BUCKET, group="s", pairs=_PAIRS.format(side="LEFT "))
_OF_JOIN = {"ts": "TIMESTAMPTZ", "n": "BIGINT", "note": "VARCHAR", "other": "BIGINT"}
_MATCHED = "ts + INTERVAL 500 MILLISECONDS"
_OF_CHAIN = {"s": "TIMESTAMPTZ", "k": "BIGINT", "c": "BIGINT", "found": "BIGINT"}


def _duckdb(sql: str) -> str:
    return sql.format(in0="in0", in1="in1")


KINDS = {
    "filter": Kind(_FILTER, _duckdb(_FILTER), {"ts": "TIMESTAMPTZ", "n": "BIGINT"}, "ts", has_state=False),
    "tumbling": Kind(
        f"SELECT window.start AS s, k, note, count(*) AS c FROM {{in0}} GROUP BY {_WINDOWS}, k, note",
        f"SELECT {_BUCKET} AS s, k, note, count(*) AS c FROM in0 GROUP BY ALL",
        {"s": "TIMESTAMPTZ", "k": "BIGINT", "note": "VARCHAR", "c": "BIGINT"},
        "s + INTERVAL 2 SECONDS + $delay",
    ),
    "session": Kind(
        "SELECT session_window.start AS s, session_window.end AS e, k, count(*) AS c FROM {in0} "
        "GROUP BY session_window(ts, '1 second'), k",
        _SESSIONS,
        {"s": "TIMESTAMPTZ", "e": "TIMESTAMPTZ", "k": "BIGINT", "c": "BIGINT"},
        "e + $delay",
    ),
    "inner-join": Kind(_INNER, _duckdb(_INNER), _OF_JOIN, _MATCHED, inputs=2),
    "left-join": Kind(
        _LEFT,
        _duckdb(_LEFT),
        _OF_JOIN,
        f"CASE WHEN other IS NULL THEN ts + INTERVAL 3 SECONDS + $delay ELSE {_MATCHED} END",
        inputs=2,
    ),
    "chain": Kind(_CHAIN, _duckdb(_CHAIN_ANSWER), _OF_CHAIN, "s + INTERVAL 5 SECONDS + $delay", inputs=2),
}
"""The chain is an aggregate over a left join."""


class Answers:
    """The right rows of a kind, by DuckDB, over inputs ``in0``, ``in1``: tables, or files of CSV with the stream's columns."""

    def __init__(self, kind: Kind, inputs: list[pa.Table] | list[str], delay_ms: int = 0) -> None:
        self._kind = kind
        self._database: Any = extras.duckdb().connect()
        self._database.execute("SET TimeZone = 'UTC'")
        for view, content in enumerate(inputs):
            if isinstance(content, str):
                types = "{'ts': 'TIMESTAMPTZ', 'n': 'BIGINT', 'k': 'BIGINT', 'note': 'VARCHAR'}"
                self._database.execute(f"CREATE VIEW in{view} AS FROM read_csv('{content}', header=true, columns={types})")
            else:
                self._database.register(f"in{view}", content)
        self._due = kind.due.replace("$delay", f"INTERVAL {delay_ms} MILLISECONDS")

    def wrong(self, found: pa.Table, upto_ms: int | None = None) -> tuple[int, int]:
        """Return how many rows of the answer are missing in ``found``, and how many others there are.

        With ``upto_ms`` only rows that are due at that event time may be missing.
        """
        casts = ", ".join(f"{name}::{type_} AS {name}" for name, type_ in self._kind.columns.items())
        self._database.register("raw", found)
        self._database.execute(f"CREATE OR REPLACE TEMP TABLE found AS SELECT {casts} FROM raw")
        self._database.execute(f"CREATE OR REPLACE TEMP TABLE answer AS {self._kind.answer}")
        if "note" in self._kind.columns:
            for table in ("answer", "found"):
                self._database.execute(f"UPDATE {table} SET note = md5(note) WHERE length(note) <> {DIGEST_LENGTH}")
        due = "" if upto_ms is None else f" WHERE {self._due} <= make_timestamptz({1000 * upto_ms})"
        return self._count(f"FROM answer{due} EXCEPT ALL FROM found"), self._count("FROM found EXCEPT ALL FROM answer")

    def due_ms(self) -> list[int]:
        """Return for each row of the last ``found`` the event time from which it may come, in their order."""
        return [int(row[0]) for row in self._database.sql(f"SELECT epoch_ms({self._due}) FROM found").fetchall()]

    def _count(self, relation: str) -> int:
        return int(self._database.sql(f"SELECT count(*) FROM ({relation})").fetchall()[0][0])
