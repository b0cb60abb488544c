"""Expressions, groups and joins on sampled rows, against DuckDB's answers over the same rows."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from sbon_node.model.samples import StreamSample, Value
from sbon_node.model.schema import parse_schema, to_arrow
from sbon_node.planning.sql.relations.logical import Select
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.sampling.evaluate import evaluate
from sbon_node.planning.sql.sampling.rows import LEAST_ROWS, SampledRows, distinct_of, distinct_values, selected, together
from sbon_node.planning.sql.sampling.stage import SampledStage, sampled_stage
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.cut import Stage, cut
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration

SCHEMA = parse_schema("ts timestamp, k string, n int, v double, ok boolean, d date")
STREAMS = {
    name: CatalogEntry(
        declaration=StreamDeclaration(name=name, schema=SCHEMA, event_time="ts"),
        sources=(SourceDeclaration(stream=name, name="a", node="a", connector="file"),),
    )
    for name in "st"
}
START = 1_580_000_000 * 1_000_000
KEYS = ("ab", "Ba", "c%", "", "abc", None)


def rows_of(count: int, seed: int = 1, step_s: float = 7.3) -> dict[str, list[Value]]:
    rng = random.Random(seed)
    return {
        "ts": [START + int(number * step_s * 1e6) for number in range(count)],
        "k": [rng.choice(KEYS) for _ in range(count)],
        "n": [rng.choice((None, *range(-20, 20))) for _ in range(count)],
        "v": [rng.choice((None, 0.0, rng.uniform(-3, 3))) for _ in range(count)],
        "ok": [rng.choice((None, True, False)) for _ in range(count)],
        "d": [18_000 + number % 9 for number in range(count)],
    }


def sampled(columns: dict[str, list[Value]], *, rows: float | None = None, seen: int | None = None) -> SampledRows:
    count = len(columns["ts"])
    whole = {name: tuple(values) for name, values in columns.items()}
    found = SampledRows.of_source(StreamSample(columns=whole, seen=seen or count, rows=rows), SCHEMA, 1.0)
    assert found is not None
    return found


def tabled(**streams: dict[str, list[Value]]) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for name, columns in streams.items():
        schema = to_arrow(SCHEMA)
        table = pa.table({f.name: pa.array(columns[f.name], pa.int64() if f.name == "ts" else None) for f in schema})
        ts, d = table.schema.get_field_index("ts"), table.schema.get_field_index("d")
        table = table.set_column(ts, "ts", table.column("ts").cast(pa.timestamp("us")))
        table = table.set_column(d, "d", table.column("d").cast(pa.int32()).cast(pa.date32()))
        database.register(f"{name}_rows", table)
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
    return database


EXPRESSIONS = [
    "n > 3",
    "n >= 3 AND v < 1.5",
    "n < 0 OR ok",
    "NOT (n = 5)",
    "NOT ok",
    "n BETWEEN -2 AND 7",
    "k IN ('ab', 'c%')",
    "k NOT IN ('ab', NULL)",
    "n IS NULL",
    "v IS NOT NULL",
    "ok IS TRUE",
    "n <=> NULL",
    "k LIKE '%b%'",
    "k LIKE 'a_'",
    "k LIKE 'c%'",
    "n * 2 + 1 > v - 3",
    "n / 4 > 1",
    "-n > 4",
    "mod(n, 4) = 0",
    "n % 3 = 1",
    "abs(n) = 7",
    "lower(k) = 'ba'",
    "length(k) > 1",
    "substring(k, 1, 1) = 'a'",
    "coalesce(n, 0) = 0",
    "CASE WHEN n > 5 THEN 'high' WHEN n > 0 THEN 'low' ELSE 'none' END = 'low'",
    "if(ok, n, v) > 0",
    "coalesce(n, -n, 0) = 0",
    "k || 'x' = 'abx'",
    "year(ts) = 2020 AND month(ts) = 1 AND day(ts) > n + 20",
    "CAST(n AS double) > 2.5",
    "CAST(n AS bigint) = 1",
    "ts > '2020-01-26 01:00:00'",
    "ts >= TIMESTAMP '2020-01-26 01:00:00' AND ts < TIMESTAMP '2020-01-26 02:00:00'",
    "ts + INTERVAL 1 HOUR > TIMESTAMP '2020-01-26 02:10:00'",
    "hour(ts) = 1",
    "minute(ts) < 30",
    "date_trunc('hour', ts) = TIMESTAMP '2020-01-26 01:00:00'",
    "d > DATE '2019-04-17'",
    "d = '2019-04-16'",
    "concat(k, 'x') = 'abx'",
    "k = 'ab' AND n > 0 AND v > 0 AND ok",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_has_duckdbs_values(text: str) -> None:
    columns = rows_of(300)
    query = push_down(read_query(f"SELECT {text} AS x FROM s", STREAMS, QuerySettings()))
    assert isinstance(query, Select)
    sample = sampled(columns)
    found = evaluate(query.outputs[0].expression, sample.columns, sample.count)
    assert found is not None, "it is not evaluated at all"
    (duck,) = sqlglot.transpile(f"SELECT {text} AS x FROM s", read="spark", write="duckdb")
    expected = [value for (value,) in tabled(s=columns).execute(duck).fetchall()]
    assert list(found.values) == expected
    assert len(set(expected)) > 1, "a test that tells nothing"


@pytest.mark.parametrize(
    "text",
    [
        "k RLIKE '(a+)+b'",
        "sha2(k, 256) = 'x'",
        "k LIKE '%a%b%c%d%'",
        "CAST(ts AS string) LIKE '2020%'",
        "n > ts",
        "array(n, 1)[0] = 1",
    ],
)
def test_what_cannot_be_evaluated_is_left_to_constants(text: str) -> None:
    query = push_down(read_query(f"SELECT ts FROM s WHERE n > 3 AND {text}", STREAMS, QuerySettings()))
    assert isinstance(query, Select)
    columns = rows_of(300)
    _, share, unknown = selected(sampled(columns), query)
    assert len(unknown) == 1
    assert share == pytest.approx(sum(value is not None and value > 3 for value in columns["n"]) / 300)  # type: ignore[operator]


@pytest.mark.parametrize("text", ["10000000000 * 10000000000 * 10000000000 * 10000000000 * n > 0", "n / 0 > 1", "v % 0 > 1"])
def test_a_value_that_cannot_be_computed_is_null(text: str) -> None:
    query = push_down(read_query(f"SELECT ts FROM s WHERE {text}", STREAMS, QuerySettings()))
    assert isinstance(query, Select)
    assert selected(sampled(rows_of(100)), query)[1] < 0.6


def test_a_condition_that_no_sampled_row_fulfils_passes_half_a_row_unless_the_sample_is_all() -> None:
    query = push_down(read_query("SELECT ts FROM s WHERE n > 100", STREAMS, QuerySettings()))
    assert isinstance(query, Select)
    assert selected(sampled(rows_of(50), rows=1e6), query)[1] == 0.01
    assert selected(sampled(rows_of(50), rows=50), query)[1] == 0.0


# -- stages ---------------------------------------------------------------------------------------------------------------


def stages_of(sql: str) -> list[Stage]:
    """The stages in the order of the flow."""
    ordered: list[Stage] = []

    def walk(stage: Stage) -> None:
        for view in stage.views:
            for feed in view.feeds:
                if isinstance(feed.origin, Stage) and feed.origin not in ordered:
                    walk(feed.origin)
        ordered.append(stage)

    for top in cut(push_down(read_query(sql, STREAMS, QuerySettings())), sql):
        walk(top)
    return ordered


def run_stages(sql: str, samples: dict[str, SampledRows]) -> list[SampledStage]:
    """Every stage over sampled rows, the last one the query's own."""
    done: dict[int, SampledStage] = {}
    results = []
    for stage in stages_of(sql):
        views = []
        for view in stage.views:
            each = [
                done[id(feed.origin)].rows if isinstance(feed.origin, Stage) else samples[feed.origin.entry.declaration.name]
                for feed in view.feeds
            ]
            views.append(together(each))
        done[id(stage)] = sampled_stage(stage.relation, views)
        results.append(done[id(stage)])
    return results


COUNTED = [
    "SELECT window.start AS w, k, count(*) AS c FROM s GROUP BY window(ts, '5 minutes'), k",
    "SELECT window.start AS w, count(*) AS c FROM s WHERE n > 0 GROUP BY window(ts, '5 minutes')",
    "SELECT window.start AS w, k FROM s GROUP BY window(ts, '5 minutes', '1 minute'), k",
    "SELECT window.start AS w, k, sum(n) AS x FROM s GROUP BY window(ts, '1 minute'), k HAVING count(*) > 2",
    "SELECT ts, k, max(v) AS m FROM s GROUP BY ts, k",
    "SELECT s.ts, s.k, t.n FROM s JOIN t ON s.k = t.k AND s.ts BETWEEN t.ts - INTERVAL 1 MINUTE AND t.ts + INTERVAL 1 MINUTE",
    "SELECT s.ts, t.n FROM s LEFT JOIN t ON s.n = t.n AND s.ts BETWEEN t.ts - INTERVAL 1 MINUTE AND t.ts + INTERVAL 1 MINUTE",
    "SELECT s.ts, t.ts AS u FROM s FULL JOIN t ON s.n = t.n AND s.ts BETWEEN t.ts - INTERVAL 9 SECONDS AND t.ts",
    "SELECT s.ts, s.k, t.v FROM s JOIN t ON s.ts = t.ts WHERE s.n > t.n",
]


def expected_rows(sql: str, database: duckdb.DuckDBPyConnection) -> int:
    """DuckDB's number of rows, each row of a sliding window in every one of its windows."""
    text = sql.replace("window.start AS w", "w")
    window = next((w for w in ("'5 minutes', '1 minute'", "'5 minutes'", "'1 minute'") if f"window(ts, {w})" in sql), "")
    if window:
        slide = "5 minutes" if window == "'5 minutes'" else "1 minute"
        copies = 5 if "," in window else 1
        start = f"time_bucket(INTERVAL '{slide}', ts) - i * INTERVAL '{slide}'"
        text = text.replace(f"window(ts, {window})", "w").replace("FROM s ", "FROM placed ")
        text = f"WITH placed AS (SELECT s.*, {start} AS w FROM s, range({copies}) r(i)) {text}"
    (duck,) = sqlglot.transpile(text, read="duckdb", write="duckdb")
    return len(database.execute(duck).fetchall())


@pytest.mark.parametrize("sql", COUNTED)
def test_a_complete_sample_gives_the_rows_of_the_query(sql: str) -> None:
    left, right = rows_of(300, seed=1), rows_of(200, seed=2, step_s=10.95)
    samples = {"s": sampled(left, rows=300), "t": sampled(right, rows=200)}
    found = run_stages(sql, samples)[-1].rows
    assert found is not None
    assert found.complete
    assert found.count == expected_rows(sql, tabled(s=left, t=right))


def test_the_groups_of_a_large_stream_are_estimated_from_an_even_sample() -> None:
    sql = "SELECT window.start AS w, n, count(*) AS c FROM s GROUP BY window(ts, '1 minute'), n"
    whole = rows_of(200_000, step_s=0.2)
    groups = len(set(zip((ts // 60_000_000 for ts in whole["ts"]), whole["n"], strict=True)))  # type: ignore[operator]
    chosen = sorted(random.Random(1).sample(range(200_000), 1000))
    thin = {name: [values[row] for row in chosen] for name, values in whole.items()}
    stage = run_stages(sql, {"s": sampled(thin, rows=2e5, seen=200_000)})[-1]
    (known,) = stage.aggregates.values()
    assert known.of_row is not None
    assert known.of_row * 200_000 == pytest.approx(groups, rel=0.4)


def test_the_groups_of_a_window_are_estimated_from_a_beginning_that_is_shorter() -> None:
    sql = "SELECT window.start AS w, n, count(*) AS c FROM s GROUP BY window(ts, '1 hour'), n"
    begin = rows_of(1000, step_s=0.2)
    stage = run_stages(sql, {"s": sampled(begin, rows=1e7)})[-1]
    (known,) = stage.aggregates.values()
    assert known.of_row is None
    assert known.in_window(18_000) == pytest.approx(41, rel=0.02)
    assert known.in_window(5) < 5


def test_equal_keys_of_large_streams_are_as_rare_as_their_values_are_many() -> None:
    sql = "SELECT s.ts FROM s JOIN t ON s.n = t.n AND s.ts BETWEEN t.ts - INTERVAL 1 MINUTE AND t.ts"
    samples = {"s": sampled(rows_of(1000), rows=1e6), "t": sampled(rows_of(1000, seed=2), rows=1e6)}
    (known,) = run_stages(sql, samples)[-1].joins.values()
    assert (known.of_left, known.equal) == (None, pytest.approx(1 / 41, rel=0.05))
    assert known.rows is not None
    assert not known.rows.complete


@pytest.mark.parametrize(
    "key", ["date_trunc('minute', s.ts) = t.ts", "s.v = t.v AND s.ts BETWEEN t.ts AND t.ts + INTERVAL 1 MINUTE"]
)
def test_keys_that_grow_with_a_stream_have_partners_although_samples_rarely_share_them(key: str) -> None:
    """Every row of the left side has one of the right side; a tenth of each is sampled, by halves from its first rows."""
    minutes = 20_000
    right: dict[str, list[Value]] = {"ts": [START - START % 60_000_000 + n * 60_000_000 for n in range(minutes)]}
    right |= {"v": [n + 0.5 for n in range(minutes)]}
    left: dict[str, list[Value]] = {name: [value for value in right[name] for _ in range(12)] for name in right}
    left["ts"] = [ts + n % 12 * 5_000_000 for n, ts in enumerate(left["ts"])]  # type: ignore[operator]
    seen = {"s": 120_000, "t": 10_000}
    samples = {}
    for name, whole in (("s", left), ("t", right)):
        chosen = sorted(random.Random(2).sample(range(seen[name]), 2000))
        thin = {column: [values[row] for row in chosen] for column, values in whole.items()}
        samples[name] = sampled(thin, rows=len(whole["ts"]), seen=seen[name])
    stages = run_stages(
        f"SELECT window.start AS w, count(*) AS c FROM s JOIN t ON {key} GROUP BY window(s.ts, '1 hour')", samples
    )
    (known,) = (pairs for stage in stages for pairs in stage.joins.values())
    assert known.growing(12.0, 1.0) == pytest.approx(12.0, rel=0.3)
    assert known.rows is not None
    assert known.rows.seen == pytest.approx(120_000, rel=0.3)
    (groups,) = (groups for stage in stages for groups in stage.aggregates.values())
    assert groups.of_row == pytest.approx(1 / 720, rel=0.3)


def test_streams_together_have_rows_in_proportion_to_their_size() -> None:
    large, small = sampled(rows_of(1000), rows=1e6, seen=1000), sampled(rows_of(500), rows=500)
    both = together([large, small])
    assert both is not None
    assert 1000 <= both.count <= 1002
    assert (both.weight, both.complete) == (1_000_500, False)
    whole = together([small, small])
    assert whole is not None
    assert (whole.count, whole.complete) == (1000, True)
    assert together([small, None]) is None


def test_too_few_rows_tell_nothing() -> None:
    few = {name: tuple(values[: LEAST_ROWS - 1]) for name, values in rows_of(50).items()}
    assert SampledRows.of_source(StreamSample(columns=few, seen=LEAST_ROWS - 1, rows=1e6), SCHEMA, 1.0) is None
    assert SampledRows.of_source(StreamSample(columns=few, seen=9, rows=9.0), SCHEMA, 1.0) is not None
    assert SampledRows.of_source(StreamSample(columns={}, seen=9, rows=9.0), SCHEMA, 1.0) is None


@pytest.mark.parametrize("values", [1, 20, 3000])
def test_distinct_values_of_even_samples_are_estimated(values: int) -> None:
    rng = random.Random(values)
    drawn = [(rng.randrange(values),) for _ in range(100_000)]
    assert distinct_values(drawn[:1000], 100_000) == pytest.approx(len(set(drawn)), rel=0.3)
    assert distinct_values(drawn, 100_000) == len(set(drawn))


def test_distinct_values_at_the_limits() -> None:
    different = [(number,) for number in range(100)]
    assert distinct_values(different, math.inf) == math.inf
    assert distinct_values(different, 5000.0) == pytest.approx(5000)
    assert distinct_values([], 50.0) == 0
    assert distinct_of(math.inf, 7.0) == 7.0
    assert distinct_of(0.0, 7.0) == 0.0
    assert distinct_of(20.0, 1e6) == pytest.approx(20)
    assert distinct_of(1e6, 10.0) == pytest.approx(10, rel=1e-3)


def test_sessions_end_after_a_gap() -> None:
    columns = rows_of(90, step_s=1.0)
    columns["ts"] = [START + (number // 10) * 60_000_000 + (number % 10) * 1_000_000 for number in range(90)]
    columns["k"] = ["a", "b"] * 45
    sql = "SELECT session_window.end AS e, k, count(*) AS c FROM s GROUP BY session_window(ts, '30 seconds'), k"
    found = run_stages(sql, {"s": sampled(columns, rows=90)})[-1].rows
    assert found is not None
    assert found.count == 18


def test_no_value_of_a_stream_can_stop_a_plan() -> None:
    """Extreme values: years that Python does not know, infinities after a multiplication, and texts that are no numbers."""
    columns = rows_of(60)
    columns["ts"] = [2**62, -(2**62), None] * 20
    columns["v"] = [1.7e308, -1.7e308, None] * 20
    columns["k"] = ["nan", "1e999", "x"] * 20
    for text in (
        *EXPRESSIONS,
        "v * v * n > 0",
        "CAST(k AS double) > 1",
        "CAST(k AS int) > 1",
        "floor(v * 10) > 1",
        "round(v * 9, 2) > 0",
    ):
        query = push_down(read_query(f"SELECT ts, {text} AS x FROM s WHERE {text}", STREAMS, QuerySettings()))
        assert isinstance(query, Select)
        assert 0.0 <= selected(sampled(columns), query)[1] <= 1.0
    for sql in COUNTED:
        run_stages(sql, {"s": sampled(columns), "t": sampled(columns, rows=60)})


def test_the_times_of_the_test_are_those_meant() -> None:
    assert datetime.fromtimestamp(START / 1e6, UTC).isoformat() == "2020-01-26T00:53:20+00:00"
