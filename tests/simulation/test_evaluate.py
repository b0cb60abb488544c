"""The simulated engine's SQL: nulls as SQL has them, against DuckDB; what it does not know is refused."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from sbon_node.engine.interface import Column
from sbon_node.errors import SbonError
from sbon_node.simulation.evaluate import decode, encode, fragment, output_schema

ROWS = pa.table(
    {
        "k": pa.array([1, 2, 3, None, 5, 6, -7], pa.int64()),
        "v": pa.array([1.5, None, -2.0, 4.0, 0.0, 7.25, 1e9], pa.float64()),
        "s": pa.array(["a", "Bc", None, "", "a", "zz", "ä"], pa.string()),
    }
)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT k, v FROM in0",
        "SELECT * FROM in0 WHERE v > 1",
        "SELECT k + 1 AS x, v / 2 AS y FROM in0 WHERE NOT (k > 2)",
        "SELECT k FROM in0 WHERE v > 0 OR s = 'a'",
        "SELECT k FROM in0 WHERE v > 0 AND s IS NOT NULL",
        "SELECT k % 3 AS m FROM in0 WHERE k IS NOT NULL",
        "SELECT s, length(s) AS n, upper(s) AS u FROM in0 WHERE s IN ('a', 'Bc', 'ä')",
        "SELECT CASE WHEN v > 1 THEN 'high' WHEN v <= 1 THEN 'low' ELSE 'none' END AS c FROM in0",
        "SELECT coalesce(v, 0.0) AS w FROM in0 WHERE k BETWEEN 2 AND 6",
        "SELECT k FROM in0 WHERE k NOT IN (1, 2)",
        "SELECT 1 AS one FROM in0 WHERE k = 999",
        "SELECT -k AS n, abs(k) AS a FROM in0",
    ],
)
def test_as_duckdb_has_it(sql: str) -> None:
    connection = duckdb.connect()
    connection.register("in0", ROWS)
    assert fragment(sql)(ROWS).to_pydict() == connection.sql(sql).to_arrow_table().to_pydict()


@pytest.mark.parametrize(
    "sql, code",
    [
        ("SELECT k FROM in0 JOIN in1 USING (k)", "unsupported-sql"),
        ("SELECT sum(k) FROM in0", "unsupported-sql"),
        ("SELECT k FROM in0 GROUP BY k", "unsupported-sql"),
        ("SELECT k FROM elsewhere", "unsupported-sql"),
        ("SELECT nothing FROM in0", "unknown-column"),
        ("SELEC k", "unsupported-sql"),
        ("SELECT k FROM in0 WHERE (", "bad-sql"),
    ],
)
def test_what_it_does_not_know_is_refused(sql: str, code: str) -> None:
    with pytest.raises(SbonError) as refusal:
        fragment(sql)(ROWS)
    assert refusal.value.code == code


def test_schema_and_payload() -> None:
    inputs = (Column("k", "bigint"), Column("v", "double"), Column("t", "timestamp"))
    assert output_schema("SELECT t, v / 2 AS h, k > 1 AS b FROM in0", (inputs,)) == (
        Column("t", "timestamp"),
        Column("h", "double"),
        Column("b", "boolean"),
    )
    assert decode(encode(ROWS)).equals(ROWS)
    assert encode(ROWS.slice(0, 0)) == b""
