"""Rows for which an expression raises an error: skipped and told, or NULL, against DuckDB; markers pass as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest

from sbon_node.model.frames import END_WATERMARK_MS
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.api.operators import InputSpec, OnError, OperatorSpec
from sbon_protocol.errors import SbonError
from tests.engine.many_port import ManyPort
from tests.engine.shared.bench import SETTINGS, Bench

pytestmark = pytest.mark.live
in_one_loop = pytest.mark.asyncio(loop_scope="session")
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("errors in operators with state on Spark")
PLANNED = pytest.mark.one_part_per_commit("expressions that Spark plans", parts=3)
ONE_PART = pytest.mark.one_part_per_commit("queries on Spark that continue after errors", parts=16)

SCHEMA: Schema = (
    Column("k", "string"), Column("n", "int"), Column("v", "double"), Column("b", "bigint"), Column("ts", "timestamp")
)  # fmt: skip
MACROS = """
    CREATE MACRO quotient(a, b) AS CASE WHEN b <> 0 THEN a / b END;
    CREATE MACRO no_quotient(a, b) AS coalesce(b = 0 AND a IS NOT NULL, false);
    CREATE MACRO no_int(a) AS a IS NOT NULL AND TRY_CAST(a AS INT) IS NULL;
"""
STATELESS: list[tuple[str, str, str]] = [
    (
        "SELECT 10 / n AS d, CAST(k AS int) AS c FROM in0 WHERE 1 / v < 2",
        "SELECT quotient(10e0, n), TRY_CAST(k AS INT) FROM in0 WHERE quotient(1e0, v) < 2",
        """SELECT quotient(10e0, n), TRY_CAST(k AS INT) FROM in0
           WHERE quotient(1e0, v) < 2 AND NOT no_quotient(10, n) AND NOT no_int(k)""",
    ),
    (
        "SELECT n, 10 / n AS d, 10 / n > 2 AS e, coalesce(1 / n, 0e0) AS f FROM in0",
        "SELECT n, quotient(10e0, n), quotient(10e0, n) > 2, coalesce(quotient(1e0, n), 0e0) FROM in0",
        "SELECT n, 10e0 / n, 10e0 / n > 2, coalesce(1e0 / n, 0e0) FROM in0 WHERE n IS DISTINCT FROM 0",
    ),
    (
        "SELECT CASE WHEN n = 0 THEN -1e0 ELSE 10 / n END AS d, nullif(10 / n, 5e0) AS z FROM in0 WHERE n <> 0 OR v > 5",
        "SELECT CASE WHEN n = 0 THEN -1e0 ELSE 10e0 / n END, nullif(quotient(10e0, n), 5e0) FROM in0 WHERE n <> 0 OR v > 5",
        "SELECT CASE WHEN n = 0 THEN -1e0 ELSE 10e0 / n END, nullif(10e0 / n, 5e0) FROM in0 WHERE n <> 0",
    ),
    (
        "SELECT b + 9223372036854775000 AS s, element_at(split(k, ','), 2) AS e, try_divide(1, n) AS t FROM in0",
        """SELECT CASE WHEN b <= 807 THEN b + 9223372036854775000 END, nullif(split_part(k, ',', 2), ''), quotient(1e0, n)
           FROM in0""",
        """SELECT b + 9223372036854775000, split_part(k, ',', 2), quotient(1e0, n) FROM in0
           WHERE coalesce(b <= 807, true) AND coalesce(k LIKE '%,%', true)""",
    ),
    (
        "SELECT k, to_timestamp(k, 'yyyy-MM-dd') AS t FROM in0 WHERE k IS NOT NULL",
        "SELECT k, TRY_CAST(TRY_STRPTIME(k, '%Y-%m-%d') AS TIMESTAMPTZ) FROM in0 WHERE k IS NOT NULL",
        "SELECT k, CAST(STRPTIME(k, '%Y-%m-%d') AS TIMESTAMPTZ) FROM in0 WHERE k = '2013-01-05'",
    ),
    ("SELECT upper(k) AS u FROM in0 WHERE v > 1", *["SELECT upper(k) FROM in0 WHERE v > 1"] * 2),
]
GROUPS = """SELECT c AS c, s AS s, m AS m FROM (SELECT window.start AS w, CAST(k AS int) % 2 AS c, {} AS s, max(v) AS m FROM in0
    GROUP BY CAST(k AS int) % 2, window(ts, '1000 milliseconds')) groups WHERE m < 100"""
STATEFUL: list[tuple[str, str, str]] = [
    (
        GROUPS.format("sum(1 / n)"),
        "SELECT TRY_CAST(k AS INT) % 2, sum(quotient(1e0, n)), max(v) FROM in0 GROUP BY 1, date_trunc('second', ts) "
        "HAVING max(v) < 100",
        """SELECT TRY_CAST(k AS INT) % 2, sum(1e0 / n), max(v) FROM in0 WHERE NOT no_int(k) AND NOT no_quotient(1, n)
           GROUP BY 1, date_trunc('second', ts) HAVING max(v) < 100""",
    ),
    (
        "SELECT c AS c, m AS m, s AS s FROM (SELECT CAST(k AS int) AS c, count(*) AS m, sum(10 / n) AS s FROM in0 "
        "GROUP BY session_window(ts, '3600000 milliseconds'), CAST(k AS int)) groups",
        "SELECT TRY_CAST(k AS INT), count(*), sum(quotient(10e0, n)) FROM in0 GROUP BY 1",
        """SELECT TRY_CAST(k AS INT), count(*), sum(10e0 / n) FROM in0 WHERE NOT no_int(k) AND NOT no_quotient(10, n)
           GROUP BY 1""",
    ),
    (
        "SELECT n AS n, s AS s, c AS c FROM (SELECT n AS n, sum(b * 4611686018427387904) AS s, count(*) AS c FROM in0 "
        "GROUP BY n, window(ts, '1000 milliseconds')) groups",
        """SELECT n, CASE WHEN abs(s) < 9223372036854775808 THEN s END::BIGINT, c FROM (SELECT n,
           sum(CASE WHEN b BETWEEN -2 AND 1 THEN b * 4611686018427387904::HUGEINT END) AS s, count(*) AS c
           FROM in0 GROUP BY n, date_trunc('second', ts))""",
        """SELECT n, s::BIGINT, c FROM (SELECT n, sum(b * 4611686018427387904::HUGEINT) AS s, count(*) AS c FROM in0
           WHERE b IS NULL OR b BETWEEN -2 AND 1 GROUP BY n, date_trunc('second', ts))
           WHERE s IS NULL OR abs(s) < 9223372036854775808""",
    ),
]
JOINED = """SELECT in0.k AS k, in1.n AS n FROM in0 {} JOIN in1 ON CAST(in0.k AS int) = in1.n AND {}
    in1.ts BETWEEN in0.ts - INTERVAL 1 SECOND AND in0.ts + INTERVAL 1 SECOND"""
PAIRED = "abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 1000000"
JOINS: list[tuple[str, str, str]] = [
    (
        JOINED.format("", "10 / in1.n + in0.v > 1 AND"),
        f"""SELECT a.k, b.n FROM in0 a JOIN in0 b ON TRY_CAST(a.k AS INT) = b.n AND {PAIRED}
            AND quotient(10e0, b.n) + a.v > 1""",
        f"""SELECT a.k, b.n FROM in0 a JOIN in0 b ON TRY_CAST(a.k AS INT) = b.n AND {PAIRED}
            AND quotient(10e0, b.n) + a.v > 1""",
    ),
    (
        JOINED.format("LEFT", ""),
        f"SELECT a.k, b.n FROM in0 a LEFT JOIN in0 b ON TRY_CAST(a.k AS INT) = b.n AND {PAIRED}",
        f"SELECT a.k, b.n FROM in0 a LEFT JOIN in0 b ON TRY_CAST(a.k AS INT) = b.n AND {PAIRED} WHERE NOT no_int(a.k)",
    ),
]


def rows_of() -> pa.Table:
    """Every value that may fail beside every other."""
    return duck().sql(
        """SELECT k, n::INT AS n, v, b::BIGINT AS b,
                  TIMESTAMPTZ '2013-01-01 00:00:00+00'
                  + to_milliseconds((250 * row_number() OVER (ORDER BY k, n, v))::BIGINT) AS ts
           FROM (VALUES ('7'), ('x'), ('1,2'), ('2013-01-05'), (NULL), ('2')) AS k(k),
                (VALUES (0), (2), (NULL), (7)) AS n(n), (VALUES (0e0, 1), (3e0, 9), (NULL, NULL)) AS v(v, b)"""
    ).to_arrow_table()  # fmt: skip


def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(MACROS)
    return connection


def expected(oracle: str, rows: pa.Table) -> list[tuple[Any, ...]]:
    connection = duck()
    connection.register("in0", rows)
    return rounded(connection.sql(oracle).fetchall())


def rounded(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(round(x, 9) if isinstance(x, float) else x for x in row) for row in rows), key=repr)


def operator(name: str, fragment: str, on_error: OnError, views: int = 1, *, state: bool) -> OperatorSpec:
    inputs = tuple(
        InputSpec(stream="in", node="n", schema=SCHEMA, view=view, event_time="ts" if state else "") for view in range(views)
    )
    return OperatorSpec(id=name, query="q", fragment=fragment, inputs=inputs, schema=(), on_error=on_error)


async def run(bench: Bench, spec: OperatorSpec, rows: pa.Table, *, apart: bool = False) -> ManyPort:
    """Two frames of rows, the end, and what comes of them; ``apart``: surely of two batches."""
    port = ManyPort(len(spec.inputs))
    half = rows.num_rows // 2
    await port.tell(0, table=rows.slice(0, half))
    await bench.instantiate(spec, port)
    if apart:
        await port.wait_read()
    await port.tell(1, table=rows.slice(half))
    await port.tell(2, ended=True)
    await port.wait_promised(END_WATERMARK_MS)
    await bench.engine.destroy(spec.id)
    return port


CASES = [
    *((case, 1, False) for case in STATELESS),
    *((case, 1, True) for case in STATEFUL),
    *((case, 2, True) for case in JOINS),
]


@in_one_loop
@pytest.mark.parametrize(
    "number, on_error",
    [
        pytest.param(
            number,
            on_error,
            id=f"{case[0][:60]}-{on_error}",
            marks=ONLY_IN_TEST_ALL if state and on_error == "null" else ONE_PART,
        )
        for number, (case, _, state) in enumerate(CASES)
        for on_error in ("null", "skip")
    ],
)
async def test_a_query_that_continues_equals_duckdb(bench: Bench, number: int, on_error: OnError) -> None:
    (fragment, null, skip), views, state = CASES[number]
    rows = rows_of()
    port = await run(bench, operator(f"{on_error}.{number}", fragment, on_error, views, state=state), rows)
    found = port.rows().to_pylist() if port.rows_visible() else []
    assert rounded([tuple(row.values()) for row in found]) == expected(null if on_error == "null" else skip, rows)
    assert on_error == "skip" or not port.skipped


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
async def test_each_skipped_row_is_reported_with_expression_and_reason(bench: Bench) -> None:
    rows = rows_of()
    port = await run(bench, operator("told", STATELESS[0][0], "skip", state=False), rows, apart=True)
    skipped = list(port.skipped.values())
    wrong = "no_quotient(1, v) OR (quotient(1e0, v) < 2 AND (no_quotient(10, n) OR no_int(k)))"
    assert sum(one.rows for one in skipped) == len(expected(f"SELECT 1 FROM in0 WHERE {wrong}", rows)) > 30
    assert [len(one.kept) for one in skipped] == [min(one.rows, 20) for one in skipped]  # engine.skipped_rows
    assert max(one.rows for one in skipped) > 20
    kept = [row for one in skipped for row in one.kept]
    assert {row.expression for row in kept} == {"10 / n", "CAST(k AS int)", "1 / v"}
    for row in kept:
        condition = "CAST_INVALID_INPUT" if "CAST" in row.expression else "DIVIDE_BY_ZERO"
        assert row.reason.startswith(f"[{condition}]")
        assert row.row.startswith('{"')
        assert "Error" not in row.reason


@in_one_loop
@pytest.mark.only_in_test_all("bounds on an engine's memory")
async def test_the_engines_memory_is_bounded_however_many_rows_are_skipped(tmp_path: Path) -> None:
    """The engine keeps some rows of a batch, and counts all."""
    bench = Bench(tmp_path, msgspec.structs.replace(SETTINGS, heap_mb=480))
    rows = duck().sql(
        """SELECT repeat('poison ', 70) || i AS k, 0 AS n, 1e0 AS v, i AS b, TIMESTAMPTZ '2013-01-01 00:00:00+00' AS ts
           FROM range(20000) AS rows(i)"""
    ).to_arrow_table()  # fmt: skip
    port = ManyPort(1)
    for _ in range(15):
        await port.tell(0, table=rows)
    await port.tell(1, ended=True)
    try:
        spec = operator("many", "SELECT 10 / n AS d FROM in0", "skip", state=False)
        await bench.instantiate(spec, port)
        await port.wait_promised(END_WATERMARK_MS)
    finally:
        await bench.engine.close()
    assert [(one.rows, len(one.kept)) for one in port.skipped.values()] == [(300_000, 20)]
    assert bench.states.count("many", "starting") == 1


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
async def test_by_default_the_query_fails_at_once_and_names_the_option(bench: Bench) -> None:
    port = ManyPort(1)
    await port.tell(0, table=rows_of())
    await bench.start(operator("strict", STATELESS[0][0], "fail", state=False), port=port)
    reason = await bench.states.wait("strict", "failed")
    await bench.engine.destroy("strict")
    assert "--on-error skip" in reason
    assert bench.states.count("strict", "starting") == 1


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
@pytest.mark.parametrize(
    "expression, told",
    [
        ("date_format(ts, concat('QQQQQQQ', k))", "INVALID_DATETIME_PATTERN"),
        ("from_utc_timestamp(ts, concat('Mars/', k))", "INVALID_TIMEZONE"),
    ],
)
async def test_a_deterministic_failure_is_reported_at_once_in_sparks_words(bench: Bench, expression: str, told: str) -> None:
    name = f"told.{told[-20:].lower().replace(' ', '-')}"
    port = ManyPort(1)
    await port.tell(0, table=rows_of())
    await bench.start(operator(name, f"SELECT {expression} AS x FROM in0", "fail", state=False), port=port)
    reason = await bench.states.wait(name, "failed")
    await bench.engine.destroy(name)
    assert told in reason
    assert "Py4J" not in reason
    assert bench.states.count(name, "starting") == 1


@in_one_loop
@pytest.mark.parametrize(
    "expression",
    [
        "k RLIKE '(?P<n>a)'", "split(k, '(?P<n>a)')", "date_format(ts, 'QQQQQQQ bad')", "to_timestamp(k, 'foo')", "1 / 0",
        "n / 0", "from_utc_timestamp(ts, 'Mars/X')", "encode(k, 'foo')", "from_unixtime(n, 'bad fmt')",
        "element_at(array(1, 2), 5)", "CASE WHEN n > 0 THEN k RLIKE '(?P<n>a)' END", "regexp_replace(k, '(?P<n>a)', 'a')",
        "make_date(2020, 13, n)", "2147483647 + 1",
    ],
)  # fmt: skip
async def test_an_error_of_every_row_is_reported_at_planning(bench: Bench, expression: str) -> None:
    with pytest.raises(SbonError) as refused:
        await bench.engine.analyse(f"SELECT {expression} AS x FROM in0", (SCHEMA,))
    assert refused.value.code == "bad-constant"
    assert refused.value.where.startswith("line 1, column ")
    assert "Py4J" not in refused.value.message


@in_one_loop
async def test_a_constant_that_fails_has_no_row_to_skip_and_may_be_null(bench: Bench) -> None:
    with pytest.raises(SbonError, match="DIVIDE_BY_ZERO"):
        await bench.engine.analyse("SELECT k, 1 / 0 AS x FROM in0", (SCHEMA,), "skip")
    assert await bench.engine.analyse("SELECT k, 1 / 0 AS x FROM in0", (SCHEMA,), "null")
    port = await run(bench, operator("constant", "SELECT n, 1 / 0 AS x FROM in0", "null", state=False), rows_of())
    assert set(port.rows()["x"].to_pylist()) == {None}


@in_one_loop
@pytest.mark.parametrize("expression", ["v + k", "n * upper(k)", "abs(k)", "-k", "k / 2"])
async def test_arithmetic_with_a_string_is_refused_at_planning(bench: Bench, expression: str) -> None:
    with pytest.raises(SbonError) as refused:
        await bench.engine.analyse(f"SELECT {expression} AS x FROM in0", (SCHEMA,))
    assert refused.value.code == "bad-operand"
    assert "CAST(" in refused.value.hint


@in_one_loop
@PLANNED
@pytest.mark.parametrize(
    "expression",
    [
        "k RLIKE '^a+$'", "split(k, ',')[5]", "date_format(ts, 'yyyy-MM-dd')", "CASE WHEN n <> 0 THEN 1 / 0 ELSE n END",
        "v + CAST(k AS double)", "v + TRY_CAST(k AS double)", "v + '1'", "100 / n", "n + 2147483647", "n div 7", "k = 5",
        "element_at(split(k, ','), 2)", "ts - INTERVAL 1 HOUR", "make_date(n, 2, 29)", "to_date(k, 'yyyyMMdd')", "pmod(n, 7)",
        "decode(k, 'a', 1)", "from_utc_timestamp(ts, 'Europe/Paris')", "try_divide(n, 0)", "to_number(k, '999')", "b * 4",
    ],
)  # fmt: skip
async def test_an_expression_that_some_rows_allow_is_planned(bench: Bench, expression: str) -> None:
    for on_error in ("fail", "skip", "null"):
        assert len(await bench.engine.analyse(f"SELECT {expression} AS x FROM in0", (SCHEMA,), on_error)) == 1  # type: ignore[arg-type]


@in_one_loop
async def test_aggregates_of_constants_are_planned(bench: Bench) -> None:
    grouped = "SELECT n AS n, c AS c FROM (SELECT k AS n, {} AS c FROM in0 GROUP BY k) groups"
    for aggregate in ("count(*)", "count(1)", "sum(1)", "count_if(true)", "max(2 * 3)"):
        assert len(await bench.engine.analyse(grouped.format(aggregate), (SCHEMA,))) == 2


@in_one_loop
async def test_a_pair_of_an_outer_join_cannot_be_skipped(bench: Bench) -> None:
    fragment = JOINED.format("LEFT", "10 / in1.n + in0.v > 1 AND")
    with pytest.raises(SbonError, match="outer or semi-join") as refused:
        await bench.engine.analyse(fragment, (SCHEMA, SCHEMA), "skip")
    assert refused.value.code == "unsupported-on-error"
    assert await bench.engine.analyse(fragment, (SCHEMA, SCHEMA), "null")
