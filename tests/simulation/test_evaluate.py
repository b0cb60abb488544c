"""The simulated engine's SQL: Spark's results for rows, and for streams with any cut into batches."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest

from sbon_lab.simulation.engine.evaluate import Evaluation, StateFiles, decode, encode, output_schema, rows_of
from sbon_node.engine.promise import FAR_MS
from sbon_node.model.schema import parse_schema, to_arrow
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from sbon_protocol.errors import SbonError

ROWS = pa.table(
    {
        "k": pa.array([1, 2, None, -7], pa.int64()),
        "v": pa.array([1.5, None, -2.0, 1e9], pa.float64()),
        "s": pa.array(["a", "Bc", None, "ä"], pa.string()),
    }
)


@pytest.mark.parametrize(
    "expression, values",
    [
        ("k / 2", [0.5, 1.0, None, -3.5]),
        ("k % 3", [1, 2, None, -1]),
        ("pmod(k, 3)", [1, 2, None, 2]),
        ("floor(v)", [1, None, -2, 10**9]),
        ("upper(s)", ["A", "BC", None, "Ä"]),
        ("v > 1 OR k = 2", [True, True, None, True]),
        ("k NOT IN (1, 2)", [False, False, None, True]),
        ("coalesce(v, 0.5)", [1.5, 0.5, -2.0, 1e9]),
        ("CASE WHEN v > 1 THEN 'high' WHEN v <= 1 THEN 'low' ELSE 'none' END", ["high", "none", "low", "high"]),
        ("s <=> NULL", [False, False, True, False]),
    ],
)
def test_an_expression(expression: str, values: list[Any]) -> None:
    assert rows_of(f"SELECT {expression} AS x FROM in0", ROWS).column("x").to_pylist() == values


@pytest.mark.parametrize("sql", ["SELECT k FROM elsewhere", "SELECT nothing FROM in0", "SELEC k", "SELECT k FROM in0 WHERE ("])
def test_unknown_names_and_syntax_are_refused(sql: str) -> None:
    with pytest.raises(SbonError) as refusal:
        output_schema(sql, ((Column("k", "bigint"),),))
    assert refusal.value.code == "bad-sql"


def test_schema_and_payload() -> None:
    schema = parse_schema("k bigint, v double, ts timestamp")
    sql = (
        "SELECT window_start AS s, n, total + 1 AS t, mean FROM (SELECT `window`.start AS window_start, `window`.`end` AS "
        "window_end, count(*) AS n, sum(k) AS total, avg(v) AS mean FROM in0 GROUP BY window(ts, '1 hour', '1 hour', '0 hour')) "
        "AS groups WHERE n > 1"
    )
    assert output_schema(sql, (schema,)) == parse_schema("s timestamp, n bigint, t bigint, mean double")
    assert decode(encode(ROWS)).equals(ROWS)
    assert encode(ROWS.slice(0, 0)) == b""


# -- streams ---------------------------------------------------------------------------------------------------------------

SCHEMA = parse_schema("ts timestamp, k bigint, v double")
EPOCH_MS = 1_600_000_000_000
TUMBLING, SLIDING = "'5 seconds', '5 seconds', '0 seconds'", "'6 seconds', '2 seconds', '0 seconds'"
WINDOW = "SELECT `window`.start AS s, `window`.`end` AS e, k, sum(v) AS total, count(*) AS n FROM in0 GROUP BY window(ts, {}), k"
ON = "ON in0.k = in1.k AND in1.ts BETWEEN in0.ts - INTERVAL '3' SECOND AND in0.ts + INTERVAL '1' SECOND"
DUCK_PIECES = "make_timestamptz(epoch_us(ts) // {0} * {0} - n * {0}) AS s FROM in0, range({1}) AS n(n)"

SHAPES = {
    "tumbling": (
        f"SELECT s, k, total FROM ({WINDOW.format(TUMBLING)}) AS groups WHERE n > 1",
        "SELECT time_bucket(INTERVAL 5 SECOND, ts) AS s, k, sum(v) FROM in0 GROUP BY ALL HAVING count(*) > 1",
    ),
    "sliding": (
        f"SELECT s, k, total, n FROM ({WINDOW.format(SLIDING)}) AS groups",
        f"SELECT s, k, sum(v), count(*) FROM (SELECT *, {DUCK_PIECES.format(2_000_000, 3)}) GROUP BY ALL",
    ),
    "session": (
        "SELECT s, e, k, n FROM (SELECT session_window.start AS s, session_window.`end` AS e, k, count(*) AS n FROM in0 "
        "GROUP BY session_window(ts, '2 seconds'), k) AS groups",
        "SELECT min(ts), max(ts) + INTERVAL 2 SECOND, k, count(*) FROM (SELECT *, sum(new) OVER (PARTITION BY k ORDER BY ts ROWS "
        "UNBOUNDED PRECEDING) AS g FROM (SELECT *, coalesce(ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) > INTERVAL 2 SECOND, "
        "true)::INT AS new FROM in0)) GROUP BY k, g",
    ),
    "keyed": (
        "SELECT t, n FROM (SELECT ts AS t, count(*) AS n FROM in0 GROUP BY ts) AS groups",
        "SELECT ts, count(*) FROM in0 GROUP BY ts",
    ),
    "inner": (f"SELECT in0.k, in0.v AS a, in1.v AS b FROM in0 JOIN in1 {ON} AND in0.v < in1.v",) * 2,
    "left": (f"SELECT in0.ts, in0.v AS a, in1.v AS b FROM in0 LEFT JOIN in1 {ON}",) * 2,
    "right": (f"SELECT in1.ts, in0.v AS a, in1.v AS b FROM in0 RIGHT JOIN in1 {ON} WHERE in0.v IS NULL",) * 2,
    "full": (f"SELECT in0.ts, in0.v AS a, in1.v AS b FROM in0 FULL JOIN in1 {ON} AND in0.v > 0.5",) * 2,
    "semi": (
        f"SELECT in0.ts, in0.v FROM in0 LEFT SEMI JOIN in1 {ON}",
        f"SELECT in0.ts, in0.v FROM in0 WHERE EXISTS (SELECT 1 FROM in1 WHERE {ON[3:]})",
    ),
    "equal times": ("SELECT in0.ts, in0.v AS a, in1.v AS b FROM in0 LEFT JOIN in1 ON in0.k = in1.k AND in0.ts = in1.ts",) * 2,
    "grouped outer join": (
        "SELECT s, n, total FROM (SELECT `window`.start AS s, `window`.`end` AS e, count(v) AS n, sum(a) AS total FROM (SELECT "
        f"in0.ts, in0.v AS a, in1.v FROM in0 LEFT JOIN in1 {ON}) AS joined GROUP BY window(ts, '5 seconds', '5 seconds', "
        "'0 seconds')) AS groups",
        "SELECT time_bucket(INTERVAL 5 SECOND, ts) AS s, count(v), sum(a) FROM (SELECT in0.ts, in0.v AS a, in1.v FROM in0 LEFT "
        f"JOIN in1 {ON}) GROUP BY s",
    ),
    "joined outer join": (
        "SELECT in0.a, in0.b, in1.v AS c FROM (SELECT in0.ts, in0.k, in0.v AS a, in1.v AS b FROM in0 LEFT JOIN in1 "
        f"{ON}) AS in0 JOIN in2 AS in1 ON in0.k = in1.k AND in1.ts BETWEEN in0.ts AND in0.ts + INTERVAL '2' SECOND",
        f"SELECT x.a, x.b, in2.v FROM (SELECT in0.ts, in0.k, in0.v AS a, in1.v AS b FROM in0 LEFT JOIN in1 {ON}) AS x JOIN in2 "
        "ON x.k = in2.k AND in2.ts BETWEEN x.ts AND x.ts + INTERVAL '2' SECOND",
    ),
}


def _stream(rng: random.Random, count: int = 60) -> Any:
    times = sorted(EPOCH_MS + rng.randrange(40_000) // 250 * 250 for _ in range(count))
    columns = [[ms * 1000 for ms in times], [rng.randrange(3) for _ in times], [rng.randrange(64) / 64 for _ in times]]
    plain = pa.table(dict(zip(("ts", "k", "v"), columns, strict=True)))
    return plain.set_column(0, "ts", plain.column("ts").cast(to_arrow(SCHEMA).field("ts").type))


def _spec(fragment: str, views: int) -> OperatorSpec:
    inputs = tuple(InputSpec(stream=f"s{n}", node="n", schema=SCHEMA, view=n, event_time="ts") for n in range(views))
    schema = output_schema(fragment, (SCHEMA,) * views)
    return OperatorSpec(id="q.o0", query="q", fragment=fragment, inputs=inputs, schema=schema)


def _answer(sql: str, streams: list[Any]) -> Counter[tuple[object, ...]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone='UTC'")
    for number, stream in enumerate(streams):
        connection.register(f"in{number}", stream)
    return _rows(connection.sql(sql.replace("in0 LEFT SEMI", "in0 SEMI")).to_arrow_table())


def _rows(table: Any) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("fragment, sql", SHAPES.values(), ids=SHAPES)
def test_the_output_does_not_depend_on_the_batches(fragment: str, sql: str, seed: int, tmp_path: Path) -> None:
    """Batches are cut anywhere, the watermark follows at any distance, and now and then all is rebuilt from the files."""
    rng = random.Random(seed)
    streams = [_stream(rng) for _ in range(3 if "in2" in fragment else 2 if "in1" in fragment else 1)]
    spec, files = _spec(fragment, len(streams)), StateFiles(tmp_path)
    evaluation, left = Evaluation(spec), Counter[tuple[object, ...]]()
    done, before_ms, now_ms = [0] * len(streams), 0, 0
    batch = 0
    while before_ms < FAR_MS:
        upto = [min(stream.num_rows, at + rng.randrange(9)) for stream, at in zip(streams, done, strict=True)]
        arrived = [stream.slice(at, to - at) for stream, at, to in zip(streams, done, upto, strict=True)]
        files.write(batch, arrived)
        left += _rows(evaluation.advance(arrived, before_ms, now_ms))
        files.compact(batch, evaluation, now_ms)
        done, before_ms = upto, now_ms
        ahead = [_next_ms(stream, at) for stream, at in zip(streams, done, strict=True)]
        now_ms = max(now_ms, min(ahead) - 1 - rng.randrange(3000) * rng.randrange(2))
        if rng.random() < 0.2:
            evaluation = Evaluation(spec)
            files.restore(batch, evaluation, before_ms)
        batch += 1
    assert left == _answer(sql, streams)


def _next_ms(stream: Any, at: int) -> int:
    return FAR_MS + 1 if at == stream.num_rows else int(stream.column("ts")[at].as_py().timestamp() * 1000)


@pytest.mark.parametrize("shape", ["tumbling", "session", "keyed", "inner", "grouped outer join"])
def test_a_row_that_the_watermark_has_passed_is_a_broken_invariant(shape: str) -> None:
    fragment = SHAPES[shape][0]
    streams = [_stream(random.Random(1)) for _ in range(2 if "in1" in fragment else 1)]
    nothing = [stream.slice(0, 0) for stream in streams]
    evaluation = Evaluation(_spec(fragment, len(streams)))
    evaluation.advance(nothing, 0, EPOCH_MS + 20_000)
    with pytest.raises(SbonError, match="rows came after the watermark"):
        evaluation.advance(streams, EPOCH_MS + 20_000, EPOCH_MS + 20_000)


def test_groups_of_a_batch_come_out_with_it_and_no_later_batch_has_their_rows() -> None:
    fragment, sql = SHAPES["tumbling"]
    stream = _stream(random.Random(1))
    evaluation = Evaluation(msgspec.structs.replace(_spec(fragment, 1), groups_per_batch=True))
    for part in (stream.slice(0, 30), stream.slice(30, 0), stream.slice(30)):
        assert _rows(evaluation.advance([part], 0, 0)) == _answer(sql, [part])
