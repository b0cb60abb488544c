"""The Spark engine, for real: rows as DuckDB has them, once each, whatever is killed meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import duckdb
import msgspec
import psutil
import pyarrow as pa
import pytest

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_node.model.frames import END_WATERMARK_MS, Frame
from sbon_node.planning.sql.checks.functions import ALLOWED
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from sbon_protocol.errors import SbonError
from tests.engine.shared.bench import Bench
from tests.engine.states import States
from tests.engine.toy_port import ToyPort

pytestmark = pytest.mark.live
in_one_loop = pytest.mark.asyncio(loop_scope="session")

SCHEMA: Schema = (
    Column("k", "bigint"),
    Column("ts", "timestamp"),
    Column("name", "string"),
    Column("price", "decimal(10,2)"),
    Column("day", "date"),
    Column("x", "double"),
)


@pytest.fixture
def folder(bench: Bench) -> Path:
    return bench.folder


@pytest.fixture
def states(bench: Bench) -> States:
    return bench.states


@pytest.fixture
def engine(bench: Bench) -> SparkEngine:
    return bench.engine


def table(first: int, count: int) -> pa.Table:
    query = f"""
        SELECT i::BIGINT AS k,
               TIMESTAMPTZ '2013-01-01 00:00:00+00' + to_microseconds(i * 1000003) AS ts,
               CASE WHEN i % 7 = 0 THEN NULL ELSE 'näme ' || i END AS name,
               (i / 4.0)::DECIMAL(10, 2) AS price,
               DATE '2013-01-01' + (i % 400)::INTEGER AS day,
               CASE WHEN i % 5 = 0 THEN NULL ELSE i / 3 END::DOUBLE AS x
        FROM range({first}, {first + count}) AS t(i) ORDER BY i"""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection.sql(query).to_arrow_table()


FRAGMENT = """SELECT k * 2 AS twice, ts, upper(name) AS name, price + 1 AS price, day, coalesce(x, 0e0) AS x, year(ts) AS y
FROM in0 WHERE k % 3 = 0 AND (name IS NULL OR x > 1)"""


def expected(rows: pa.Table) -> list[tuple[object, ...]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("in0", rows)
    return sorted(connection.sql(FRAGMENT).fetchall(), key=repr)


def found(rows: pa.Table) -> list[tuple[object, ...]]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("output", rows)
    return sorted(connection.sql("SELECT * FROM output").fetchall(), key=repr)


def spec(name: str, reader: str = "simple", fragment: str = FRAGMENT) -> OperatorSpec:
    return OperatorSpec(
        id=name,
        query="q",
        fragment=fragment,
        inputs=(InputSpec(stream="in", node="n", schema=SCHEMA),),
        schema=(),
        reader="partitioned" if reader == "partitioned" else "simple",
    )


async def started(engine: SparkEngine, folder: Path, operator: OperatorSpec) -> ToyPort:
    port = ToyPort()
    await engine.instantiate(operator, port, checkpoint_of(folder, operator.id))
    return port


def checkpoint_of(folder: Path, operator: str) -> Path:
    checkpoint = folder / "operators" / operator
    checkpoint.mkdir(parents=True)
    return checkpoint


class FatalPort(ToyPort):
    """Kills the JVM when rows are asked for the first time."""

    def __init__(self, engine: SparkEngine) -> None:
        super().__init__()
        self._engine, self._killed = engine, False

    async def fetch(self, position: int, after_frame: int, upto_frame: int) -> list[Frame]:
        if not self._killed:
            self._killed = True
            os.kill(_processes(self._engine)["jvm"], signal.SIGKILL)
        return await super().fetch(position, after_frame, upto_frame)


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
@pytest.mark.parametrize("reader", ["simple", "partitioned"])
async def test_rows_are_those_of_duckdb(engine: SparkEngine, folder: Path, reader: str) -> None:
    port = await started(engine, folder, spec(f"rows.{reader}", reader))
    for first in range(0, 5000, 1000):
        await port.feed(table(first, 1000))
    await port.feed(None, ended=True)

    rows = await port.wait_ended()

    assert found(rows) == expected(table(0, 5000))
    stats = engine.stats(f"rows.{reader}")
    assert (stats.rows_in, stats.rows_out) == (5000, rows.num_rows)
    assert port.cpu_s > 0
    await engine.destroy(f"rows.{reader}")


@in_one_loop
@pytest.mark.one_part_per_commit("readers whose processor time is measured on Spark", parts=8)
@pytest.mark.parametrize("reader", ["simple", "partitioned"])
async def test_the_processor_time_of_an_operator_is_its_own(engine: SparkEngine, folder: Path, reader: str) -> None:
    """One operator works and one has few rows; both count less than all processes of the engine have taken."""
    await engine.start()
    before_s = _cpu_s(engine)
    busy, idle = [await started(engine, folder, spec(f"{name}.{reader}", reader)) for name in ("busy", "idle")]
    for first in range(0, 200_000, 20_000):
        await busy.feed(table(first, 20_000))
    for port in (idle, busy):
        await port.feed(table(0, 1))
        await port.feed(None, ended=True)
        await port.wait_ended()
    taken_s = _cpu_s(engine) - before_s
    await engine.destroy(f"idle.{reader}")
    await engine.destroy(f"busy.{reader}")
    assert 0 < 2 * idle.cpu_s < busy.cpu_s
    assert 0.1 * taken_s < busy.cpu_s + idle.cpu_s < taken_s


def _cpu_s(engine: SparkEngine) -> float:
    """Processor time of all processes of the engine that live, and of those that they have waited for."""
    assert engine.engine_pid is not None
    top = psutil.Process(engine.engine_pid)
    return sum(sum(process.cpu_times()[:4]) for process in (top, *top.children(recursive=True)))


@in_one_loop
async def test_a_batch_without_rows_is_written_too(engine: SparkEngine, folder: Path) -> None:
    port = await started(engine, folder, spec("none", fragment="SELECT k FROM in0 WHERE k < 0"))
    await port.feed(table(0, 10), ended=True)
    await port.wait_visible(0)
    (draft,) = port.output[0]
    assert (draft.rows, draft.watermark_ms, draft.ended) == (0, END_WATERMARK_MS, True)
    await engine.destroy("none")


def _processes(engine: SparkEngine) -> dict[str, int]:
    pid = engine.engine_pid
    children = psutil.Process(pid).children(recursive=True)
    jvm = next(p for p in children if "java" in p.name())
    workers = jvm.children(recursive=True)  # the launchers of its Python processes
    return {"engine": pid, "jvm": jvm.pid, "worker": workers[-1].pid}


@in_one_loop
@pytest.mark.parametrize(
    "victim", ["worker", pytest.param("engine", marks=pytest.mark.only_in_test_all("killed engine processes"))]
)
async def test_whatever_is_killed_each_row_comes_once(engine: SparkEngine, folder: Path, victim: str) -> None:
    port = await started(engine, folder, spec(f"kill.{victim}"))
    await port.feed(table(0, 500))
    await port.wait_visible(0)
    os.kill(_processes(engine)[victim], signal.SIGKILL)
    for first in range(500, 1500, 500):
        await port.feed(table(first, 500))
    await port.feed(None, ended=True)

    assert found(await port.wait_ended()) == expected(table(0, 1500))
    await engine.destroy(f"kill.{victim}")


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
async def test_a_jvm_that_dies_amid_a_batch_is_no_operators_end(engine: SparkEngine, folder: Path, states: States) -> None:
    """Its queries end with it, each with a reason of its own, which would count against it (see ``test_restarts``)."""
    port, idle = FatalPort(engine), await started(engine, folder, spec("idle"))
    await engine.instantiate(spec("amid"), port, checkpoint_of(folder, "amid"))
    for first in range(0, 1500, 500):
        await port.feed(table(first, 500))
    await port.feed(None, ended=True)
    assert found(await port.wait_ended()) == expected(table(0, 1500))
    await idle.feed(table(0, 100), ended=True)
    assert found(await idle.wait_ended()) == expected(table(0, 100))
    for name in ("amid", "idle"):
        assert {reason.split(", see ")[0] for _, reason in states.told[name]} == {"", "the engine's JVM died"}
        await engine.destroy(name)


@in_one_loop
async def test_a_full_disk_stops_the_operator_until_there_is_room(engine: SparkEngine, folder: Path) -> None:
    port = await started(engine, folder, spec("full"))
    port.refusal = SbonError("disk-full", "no space left")
    await port.feed(table(0, 100), ended=True)
    await port.wait_refused()
    port.refusal = None
    assert found(await port.wait_ended()) == expected(table(0, 100))
    await engine.destroy("full")


@in_one_loop
@pytest.mark.parametrize(
    "name, fragment, reason",
    [
        ("row", "SELECT repeat(name, 200000) AS much FROM in0 WHERE k = 50", "over the limit"),
        ("data", "SELECT k / (k - 50) AS x FROM in0", "SQLSTATE: 22012 in k / (k - 50)"),
    ],
)
async def test_a_deterministic_error_fails_the_operator(
    engine: SparkEngine, folder: Path, states: States, name: str, fragment: str, reason: str
) -> None:
    port = await started(engine, folder, spec(f"fails.{name}", fragment=fragment))
    await port.feed(table(0, 100), ended=True)
    assert reason in await states.wait(f"fails.{name}", "failed")
    assert port.visible == -1
    await engine.destroy(f"fails.{name}")


@in_one_loop
async def test_rows_keep_the_moment_they_entered_the_overlay(engine: SparkEngine, folder: Path) -> None:
    port = await started(engine, folder, spec("born"))
    await port.feed(table(0, 10), born_ms=1_700_000_000_123)
    await port.wait_visible(0)
    assert {draft.born_ms for draft in port.output[0]} == {1_700_000_000_123}
    await engine.destroy("born")


@in_one_loop
async def test_an_operator_stops_after_a_committed_batch_that_is_visible(engine: SparkEngine, folder: Path) -> None:
    port = await started(engine, folder, spec("stops"))
    for first in range(0, 20_000, 1000):
        await port.feed(table(first, 1000))
    await port.wait_visible(0)
    await port.feed(table(20_000, 1000))
    await engine.destroy("stops")

    log = BatchLog(folder / "operators" / "stops")
    assert log.is_settled()
    assert port.visible == log.commits()[-1] == max(port.output)


@in_one_loop
async def test_an_operator_resumes_where_it_stopped(engine: SparkEngine, folder: Path) -> None:
    port = await started(engine, folder, spec("again"))
    await port.feed(table(0, 500))
    await port.wait_visible(0)
    await engine.destroy("again")
    await port.feed(table(500, 500), ended=True)
    await engine.instantiate(spec("again"), port, folder / "operators" / "again")
    assert found(await port.wait_ended()) == expected(table(0, 1000))
    await engine.destroy("again")


GROUPED = """SELECT window_start, window_end, day, count, sum FROM (SELECT `window`.start AS window_start, `window`.`end` AS
window_end, day, count(*) AS count, sum({column}) AS sum FROM (SELECT ts, k, day, price FROM in0 WHERE k > 10) AS joined
GROUP BY window(ts, '60000 milliseconds', '60000 milliseconds', '0 milliseconds'), day) AS groups"""


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
@pytest.mark.parametrize("column, type_", [("k", "bigint"), ("price", "decimal(20,2)")], ids=["by readers", "by Spark"])
async def test_groups_of_each_batch_come_with_it_and_add_up_over_a_restart(
    engine: SparkEngine, folder: Path, column: str, type_: str
) -> None:
    names = {"window_start": "timestamp", "window_end": "timestamp", "day": "date", "count": "bigint", "sum": type_}
    plain = spec(f"grouped.{column}", "partitioned", GROUPED.format(column=column))
    schema = tuple(Column(name, of) for name, of in names.items())
    operator = msgspec.structs.replace(plain, groups_per_batch=True, schema=schema)
    assert not operator.has_state
    port = await started(engine, folder, operator)
    await port.feed(table(0, 500))
    await port.wait_visible(0)
    assert {draft.watermark_ms for draft in port.output[0]} == {1}
    first_groups = port.rows().num_rows
    await engine.destroy(operator.id)
    await port.feed(table(500, 500), ended=True)
    await engine.instantiate(operator, port, folder / "operators" / operator.id)
    rows = await port.wait_ended()
    await engine.destroy(operator.id)

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("output", rows)
    connection.register("in0", table(0, 1000))
    merged = "SELECT window_start, window_end, day, sum(count)::BIGINT, sum(sum) FROM output GROUP BY ALL ORDER BY ALL"
    start = "time_bucket(INTERVAL 1 MINUTE, ts)"
    whole = f"""SELECT {start}, {start} + INTERVAL 1 MINUTE, day, count(*), sum({column}) FROM in0 WHERE k > 10
        GROUP BY ALL ORDER BY ALL"""
    assert 0 < first_groups < rows.num_rows
    assert connection.sql(merged).fetchall() == connection.sql(whole).fetchall()


EVERYDAY = """SELECT in0.*, k AS n, -k, +k, ~k, k & 1 | 2 ^ 3, k + 1 - 2 * 3 / 4 % 5, k DIV 2, name || 'x', CAST(k AS string),
k::int, TRY_CAST(name AS int), CASE WHEN k > 1 THEN 'a' ELSE 'b' END, CASE k WHEN 1 THEN 2 END, name LIKE 'a%',
name NOT LIKE 'a%', name ILIKE 'A%', name RLIKE 'a.*', k BETWEEN 1 AND 2, k NOT IN (1, 2), name IS NULL, name IS NOT NULL,
k <=> 1, k != 1, k <> 1, (k > 1) IS TRUE, ts + INTERVAL 1 DAY, ts - INTERVAL '2' HOUR, EXTRACT(YEAR FROM ts), DATE '2013-01-01',
TIMESTAMP '2013-01-01 00:00:00', TRIM(name), TRIM(BOTH 'x' FROM name), SUBSTRING(name, 1, 2), POSITION('a' IN name),
timestampdiff(HOUR, ts, ts), dateadd(DAY, 1, day) FROM in0 WHERE (k > 1 OR k < -1) AND NOT (k = 3) AND name = 'it'"""


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
@in_one_loop
@pytest.mark.parametrize("fragment", [f"SELECT {', '.join(f'{name}(k)' for name in sorted(ALLOWED))} FROM in0", EVERYDAY])
async def test_the_guard_knows_every_function_that_the_text_check_allows(engine: SparkEngine, fragment: str) -> None:
    """Other refusals of Spark, as for too few arguments, are not the guard's."""
    try:
        await engine.analyse(fragment, (SCHEMA,))
    except SbonError as error:
        assert error.code not in ("forbidden-sql", "parse-syntax-error"), str(error)  # noqa: PT017 - another refusal is fine


REFUSED = [
    ("SELECT nope FROM in0", "unresolved-column"),
    ("SELECT k frm in0 x y", "parse-syntax-error"),
    ("SELECT reflect('java.lang.System', 'exit', 1) FROM in0", "forbidden-sql"),
    ("SELECT java_method('java.lang.Runtime', 'getRuntime') FROM in0", "forbidden-sql"),
    ("SELECT * FROM text.`/etc/passwd`", "forbidden-sql"),
    ("SELECT TRANSFORM (k) USING 'cat' AS (y) FROM in0", "forbidden-sql"),
    ("SELECT (SELECT 1) FROM in0", "forbidden-sql"),
    ("SELECT k FROM in0 WHERE EXISTS (SELECT 1 FROM in0)", "forbidden-sql"),
    ("SELECT explode(array(1, 2)) FROM in0", "forbidden-sql"),
    ("SELECT k FROM in0 UNION ALL SELECT k FROM in0", "forbidden-sql"),
    ("SELECT k, collect_list(name) FROM in0 GROUP BY k", "forbidden-sql"),
    ("SELECT a.k FROM in0 AS a CROSS JOIN in0 AS b", "forbidden-sql"),
    ("SELECT uuid() FROM in0", "forbidden-sql"),
    ("SET spark.sql.ansi.enabled = false", "forbidden-sql"),
    ("ADD JAR '/tmp/x.jar'", "forbidden-sql"),
    ("CREATE TABLE t (a INT)", "forbidden-sql"),
    ("EXECUTE IMMEDIATE 'SELECT 1'", "forbidden-sql"),
    ("WITH a AS (SELECT 1) SELECT * FROM a", "forbidden-sql"),
    ("SELECT * FROM range(10)", "forbidden-sql"),
    (r"SELECT name RLIKE '(a)\1341' FROM in0", "unsupported-pattern"),  # 134 is a back-slash to Spark alone
    ("SELECT split(name, name) FROM in0", "unsupported-pattern"),
]


@in_one_loop
@pytest.mark.parametrize("fragment, code", REFUSED, ids=[code + ":" + text[:30] for text, code in REFUSED])
async def test_forbidden_fragments_are_refused(engine: SparkEngine, fragment: str, code: str) -> None:
    """That nothing of them runs is shown in ``test_nothing_ran``."""
    with pytest.raises(SbonError) as refusal:
        await engine.analyse(fragment, (SCHEMA,))
    assert refusal.value.code == code
    assert refusal.value.message


@in_one_loop
async def test_a_fragment_is_allowed_for_its_number_of_views(engine: SparkEngine) -> None:
    """It is checked once by an engine process."""
    columns = (Column("n", "bigint"),)
    for _ in range(2):
        assert await engine.analyse("SELECT n FROM in1", (columns, columns)) == columns
        with pytest.raises(SbonError, match="the relation in1 is not an input"):
            await engine.analyse("SELECT n FROM in1", (columns,))


@in_one_loop
async def test_analysis_gives_the_schema_and_the_place_of_errors(engine: SparkEngine) -> None:
    schema = await engine.analyse("SELECT k + 1 AS n, price * 2 AS p, ts FROM in0", (SCHEMA,))
    assert schema == (Column("n", "bigint"), Column("p", "decimal(12,2)"), Column("ts", "timestamp"))
    with pytest.raises(SbonError) as refusal:
        await engine.analyse("SELECT k,\n  nope FROM in0", (SCHEMA,))
    assert refusal.value.where == "line 2, column 3"
