"""Rows in a real PostgreSQL, each once, whichever side is killed when; what the table refuses is kept, and names are names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sbon_node.connectors.formats import frames
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.postgres import Database
from sbon_node.connectors.sinks.postgres_options import check_columns, read_name
from sbon_node.connectors.sinks.registry import check_sink, reach_sink
from sbon_node.model.frames import Frame
from sbon_protocol.errors import SbonError
from tests.connectors.sent_streams import EXPECTED, Killed
from tests.connectors.servers import PASSWORD, USER, Postgres
from tests.connectors.sink_world import QUICK, Sinking
from tests.connectors.test_http_sink import letters_in


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres() as started:
        yield started


@pytest.fixture
def database(server: Postgres) -> Postgres:
    server.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return server


@pytest.fixture
def settings(server: Postgres, tmp_path: Path) -> ConnectorSettings:
    """The password is in the node's own file, and in no URL."""
    words = tmp_path / "words"
    words.write_text(f"machine {server.host} login {USER} password {PASSWORD}\n")
    return ConnectorSettings(retry_s=0.1, retry_max_s=0.2, passwords=str(words), endpoints=("127.0.0.0/8",))


@pytest.fixture
def sinking(database: Postgres, settings: ConnectorSettings, tmp_path: Path) -> Sinking:
    return Sinking(tmp_path, "postgres", {"url": database.url(), "table": "results"}, settings=settings)


def rows(database: Postgres) -> list[tuple[Any, ...]]:
    found = database.sql("SELECT stream, n, x FROM results")
    return sorted((s, int(n), float(x) if x else None) for s, n, x in found)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_another_reader_finds_every_row_with_its_type(database: Postgres, sinking: Sinking) -> None:
    runner = await sinking.run()
    assert rows(database) == EXPECTED
    assert database.sql("SELECT min(ts), pg_typeof(min(ts)), pg_typeof(min(n)) FROM results") == [
        ["1970-01-01 00:16:40+00", "timestamp with time zone", "bigint"]
    ]
    assert (runner.rows, runner.describe().refused, sinking.acknowledged) == (len(EXPECTED), 0, {"a": 13, "b": 6})
    again = await sinking.run()
    assert (again.rows, rows(database)) == (len(EXPECTED), EXPECTED)


@pytest.mark.one_part_per_commit("connectors at work", parts=6)
async def test_killed_between_any_two_steps_each_row_is_there_once(database: Postgres, sinking: Sinking) -> None:
    """A kill before the commit undoes it; one after it leaves a position that is known again."""
    for point in range(1, 30):
        database.sql("DROP TABLE IF EXISTS results")
        one = Sinking(
            sinking.folder, "postgres", sinking.options, settings=sinking.settings, claim=f"k{point}", pause_s=0.02 * (point % 3)
        )
        deaths, left = 0, point

        def kill(step: str, point: int = point) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                left = point + 1
                raise Killed

        one.failpoint = kill
        while True:
            try:
                await one.run()
                break
            except Killed:
                deaths += 1
                if deaths > 3:
                    one.failpoint = lambda step: None
        assert rows(database) == EXPECTED
        if not deaths:
            assert point > 2
            return
    pytest.fail("the sink never ran to its end")


@pytest.mark.one_part_per_commit("connectors at work", parts=6)
async def test_the_server_killed_and_started_again_has_each_row_once(database: Postgres, sinking: Sinking) -> None:
    sinking.pause_s = 0.15
    task = asyncio.ensure_future(sinking.run())
    for count in (5, 15):
        await until(lambda count=count: hasattr(sinking, "runner") and sinking.runner.rows >= count)  # type: ignore[misc]
        await asyncio.to_thread(database.kill)
        await until(lambda: sinking.runner.state == "paused")
        assert database.host in sinking.runner.reason
        assert PASSWORD not in sinking.runner.reason
        await asyncio.to_thread(database.start)
        await until(lambda: sinking.runner.state != "paused")
    await task
    assert rows(database) == EXPECTED
    assert sinking.runner.retries >= 2


async def test_a_commit_whose_answer_is_lost_is_not_repeated(database: Postgres, sinking: Sinking) -> None:
    """The connection is cut between the server's commit and its answer, as often as there are commits."""
    import asyncpg

    cut = 0
    sinking.pause_s = 0.03
    sink = await sinking.open()
    database_of = sink._sink._database  # type: ignore[attr-defined]
    advance = database_of.advance

    async def committed_and_cut(connection: Any, *args: Any) -> bool:
        nonlocal cut
        done = bool(await advance(connection, *args))
        if cut < 3:
            cut += 1
            await connection.execute("COMMIT")
            raise asyncpg.ConnectionDoesNotExistError("cut after the commit")
        return done

    database_of.advance = committed_and_cut
    try:
        await sink.run()
    finally:
        await sink.close()
    assert cut == 3
    assert rows(database) == EXPECTED
    assert sink.retries == 3


async def test_rows_that_the_table_refuses_are_kept_and_the_others_stored(database: Postgres, sinking: Sinking) -> None:
    columns = "id bigserial, stream varchar(1), n integer CHECK (n <> 50), ts timestamptz, x double precision"
    database.sql(f"CREATE TABLE results ({columns}, PRIMARY KEY (n, x))")
    with pytest.raises(SbonError) as caught:
        await sinking.run()
    assert (caught.value.code, caught.value.details) == ("bad-table", ())
    assert caught.value.message.endswith(": the column n is integer, and the query gives bigint")
    database.sql("ALTER TABLE results ALTER n TYPE bigint; ALTER TABLE results DROP CONSTRAINT results_pkey")
    database.sql("ALTER TABLE results ALTER x DROP NOT NULL; CREATE UNIQUE INDEX ON results (n) WHERE n < 40")
    runner = await sinking.run()
    report = runner.describe()
    letters = letters_in(report.dead_letters)
    assert report.rows + report.refused == len(EXPECTED)
    kept = [json.loads(letter["text"]) for letter in letters]
    assert sorted([*rows(database), *((r["stream"], r["n"], r["x"]) for r in kept)]) == EXPECTED
    reasons = " ".join(letter["reason"] for letter in letters)
    assert "check constraint" in reasons
    assert "unique constraint" in reasons


WIDE = pa.schema(
    [
        ('a "quoted" name; DROP TABLE results', pa.string()),
        ("d", pa.decimal128(12, 3)),
        ("b", pa.binary()),
        ("t", pa.bool_()),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("f", pa.float32()),
        ("g", pa.float64()),
        ("s", pa.int16()),
    ]
)
VALUES = [
    (
        'say "x",\n\\.\n',
        Decimal("-1.250"),
        b"\x00\xff\\",
        True,
        date(2020, 2, 29),
        datetime(2020, 1, 1, 1, 2, 3, 4),
        0.5,
        1e300,
        -3,
    ),
    ("", None, b"", None, None, None, float("nan"), float("-inf"), None),
    ("NULL", Decimal("0"), None, False, date(1, 1, 1), datetime(1, 1, 1), None, None, 0),
    ("with \0 in it", None, None, None, None, None, None, None, None),
]


async def test_values_and_names_of_all_kinds(database: Postgres, settings: ConnectorSettings, tmp_path: Path) -> None:
    table = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(zip(*VALUES, strict=True), WIDE, strict=True)], schema=WIDE
    )
    sent = {"s": [Frame(stream="s", number=1, payload=frames.encode(table), rows=4, ended=True)]}
    database.sql('CREATE SCHEMA "odd ""one"')
    options = {"url": database.url(), "table": 'odd "one.results"; --'}
    one = Sinking(tmp_path, "postgres", options, sent=sent, schema=WIDE, settings=settings)
    runner = await one.run()
    assert (runner.rows, runner.describe().refused) == (3, 1)
    where = '"odd ""one"."results""; --"'
    found = database.sql(f"""SELECT "a ""quoted"" name; DROP TABLE results" = E'say "x",\\n\\\\.\\n', d, b, t, day, local, f, g, s
                             FROM {where} ORDER BY s NULLS FIRST""")
    assert found == [
        ["f", "", "\\x", "", "", "", "NaN", "-Infinity", ""],
        ["t", "-1.250", "\\x00ff5c", "t", "2020-02-29", "2020-01-01 01:02:03.000004", "0.5", "1e+300", "-3"],
        ["f", "0.000", "", "f", "0001-01-01", "0001-01-01 00:00:00", "", "", "0"],
    ]
    assert database.sql(f"SELECT count(*) FROM {where} WHERE b IS NULL") == [["1"]]


async def test_tables_of_the_sink_are_dropped_with_its_query(database: Postgres, sinking: Sinking) -> None:
    def tables() -> set[str]:
        return {name for (name,) in database.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}

    await sinking.open()
    assert tables() == {"results", "sbon_positions"}
    for _ in range(2):
        await sinking.withdraw(delivered=False)
        assert tables() == {"sbon_positions"}
    sinking.fresh = True
    await sinking.run()
    await sinking.withdraw(delivered=False)
    assert rows(database) == EXPECTED
    with pytest.raises(SbonError) as caught:
        await sinking.run()
    assert caught.value.code == "sink-lost"
    other = Sinking(sinking.folder, "postgres", sinking.options, settings=sinking.settings, claim="other")
    await other.run()
    await other.withdraw(delivered=True)
    assert len(rows(database)) == 2 * len(EXPECTED), "a table that was there is never dropped"
    database.kill()
    await sinking.withdraw(delivered=True)
    database.start()


async def test_a_table_that_is_gone_ends_the_query(database: Postgres, sinking: Sinking) -> None:
    sinking.pause_s = 0.1
    task = asyncio.ensure_future(sinking.run())
    await until(lambda: hasattr(sinking, "runner") and sinking.runner.rows > 0)
    await asyncio.to_thread(database.sql, "DROP TABLE results")
    with pytest.raises(SbonError) as caught:
        await task
    assert caught.value.code == "sink-lost"
    assert 'relation "public.results" does not exist' in str(caught.value)


async def test_refused_words_and_hosts(database: Postgres, tmp_path: Path) -> None:
    for url, reason in (
        (database.url("wrong"), "password authentication failed"),
        (database.url("x").replace("15432", "15433"), "15433"),
    ):
        with pytest.raises(SbonError) as caught:
            await Sinking(tmp_path, "postgres", {"url": url, "table": "t"}, settings=QUICK).run()
        assert caught.value.code == "endpoint-unreachable"
        assert reason in str(caught.value)
        assert "wrong" not in str(caught.value)


async def test_a_server_that_is_not_there_is_named_with_its_option(tmp_path: Path) -> None:
    url = "postgres://postgres@127.0.0.1:1/postgres"
    with pytest.raises(SbonError) as caught:
        await Sinking(tmp_path, "postgres", {"url": url, "table": "t"}, settings=QUICK).run()
    assert (caught.value.code, caught.value.where) == ("endpoint-unreachable", "postgres://127.0.0.1:1/postgres/public.t")
    assert "options.url" in caught.value.hint
    assert "Errno" not in caught.value.message


def test_each_defect_of_a_table_is_named_once() -> None:
    schema = pa.schema([("n", pa.int64()), ("symbol", pa.string())])
    with pytest.raises(SbonError) as caught:
        check_columns(read_name("rows"), schema, [])
    assert caught.value.message == "public.rows cannot hold the rows: there is no column n"
    assert caught.value.details == ("there is no column symbol",)


async def test_a_table_without_permission_is_reported_at_once(database: Postgres, tmp_path: Path) -> None:
    database.sql("DROP ROLE IF EXISTS poor; CREATE ROLE poor LOGIN PASSWORD 'poor'; CREATE TABLE theirs (n bigint)")
    url = f"postgres://poor:poor@{database.host}:{database.port}/postgres"
    for table in ("t", "theirs"):
        with pytest.raises(SbonError) as caught:
            await Sinking(tmp_path, "postgres", {"url": url, "table": table}, settings=QUICK).run()
        assert (caught.value.code, caught.value.where) == ("bad-table", "options.table")
        assert "permission denied" in caught.value.message


@pytest.mark.parametrize(
    "url, table, where",
    [
        ("mysql://h/db", "t", "options.url"),
        ("postgres://h", "t", "options.url"),
        ("postgres:///db", "t", "options.url"),
        ("postgres://h/db/t", "t", "options.url"),
        ("postgres://h/db?sslmode=never", "t", "options.url"),
        ("postgres://h/db?passfile=/etc/shadow", "t", "options.url"),
        ("postgres://h/db", "", "options.table"),
        ("postgres://h/db", ".t", "options.table"),
        ("postgres://h/db", "a\0b", "options.table"),
        ("postgres://h/db", "x" * 64, "options.table"),
    ],
)
def test_bad_options_are_refused_at_submission(url: str, table: str, where: str) -> None:
    with pytest.raises(SbonError) as caught:
        check_sink("postgres", {"url": url, "table": table}, ConnectorSettings())
    assert (caught.value.code, caught.value.where) == ("bad-option", where)


async def test_a_node_that_takes_the_sink_over_fences_the_former_one(
    database: Postgres, sinking: Sinking, settings: ConnectorSettings, tmp_path: Path
) -> None:
    """The former one has copied its rows, and comes to its position after the other: nothing of its transaction stays."""
    sinking.pause_s = 0.03
    after: list[Sinking] = []

    def pause(step: str) -> None:
        if step == "sink-write" and sinking.acknowledged and not after:
            after.append(Sinking(tmp_path / "other", "postgres", sinking.options, settings=settings, epoch=2))

    sinking.failpoint = pause
    former = await sinking.open()
    advance = former._sink._database.advance  # type: ignore[attr-defined]

    async def overtaken(connection: Any, *args: Any) -> bool:
        if after:
            after[0].fresh, after[0].acknowledged = False, dict(sinking.acknowledged)
            await after[0].run()
        return bool(await advance(connection, *args))

    former._sink._database.advance = overtaken  # type: ignore[attr-defined]
    with pytest.raises(SbonError) as lost:
        await former.run()
    assert (lost.value.code, lost.value.message) == ("fenced", "epoch 1 of the sink is over, epoch 2 delivers")
    assert rows(database) == EXPECTED
    late = Sinking(tmp_path, "postgres", sinking.options, settings=settings, epoch=1)
    late.fresh = False
    with pytest.raises(SbonError) as fenced:
        await late.run()
    assert (fenced.value.code, rows(database)) == ("fenced", EXPECTED)


async def test_a_sink_is_within_reach_only_where_its_position_is(database: Postgres, sinking: Sinking) -> None:
    kind, options, context = sinking.kind, sinking.options, sinking.context(fresh=False)
    with pytest.raises(SbonError) as caught:
        await reach_sink(kind, options, context)
    assert caught.value.code in ("sink-lost", "endpoint-unreachable")
    await sinking.run()
    await reach_sink(kind, options, context)
    assert database.sql("SELECT count(*) FROM sbon_positions") == [["1"]]


async def test_the_server_ends_a_transaction_whose_node_falls_silent(
    database: Postgres, sinking: Sinking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server bounds pauses and statements where a sink is made, delivers, is opened again and is withdrawn."""
    seen: list[str] = []
    begin = Database.transaction

    @asynccontextmanager
    async def look(self: Database, connection: Any) -> AsyncIterator[None]:
        async with begin(self, connection):
            for bound in ("idle_in_transaction_session_timeout", "statement_timeout"):
                seen.append(await connection.fetchval(f"SHOW {bound}"))
            yield

    monkeypatch.setattr(Database, "transaction", look)
    await (await sinking.open()).close()
    assert len(seen) == 2
    await sinking.run()
    delivered = len(seen)
    assert delivered >= 6
    await sinking.withdraw(delivered=True)
    assert len(seen) == delivered + 2
    assert "0" not in seen
