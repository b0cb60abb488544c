"""CREATE STREAM, ATTACH, DETACH and DROP STREAM in the shell: what they ask of the node, and where their errors are."""

from __future__ import annotations

from typing import Any

import pytest

from sbon.model import Column
from sbon_cli.shell.actions import Attach, CreateResult, CreateStream, CreateView, Detach, DropStream, action_of, with_position
from sbon_protocol.errors import SbonError
from tests.cli.commands import lines, run

CREATE = """create stream trades (ts timestamp, price decimal(10,2), -- in euros
  size bigint) event time ts delay '10 seconds' comment 'of one exchange''s'"""


def test_a_stream_is_declared() -> None:
    found = action_of(CREATE)
    assert isinstance(found, CreateStream)
    assert found.declaration.name == "trades"
    columns = (Column("ts", "timestamp"), Column("price", "decimal(10,2)"), Column("size", "bigint"))
    assert found.declaration.schema == columns
    told = found.declaration
    assert (told.event_time, told.delay_ms, told.comment) == ("ts", 10_000, "of one exchange's")
    for delay, expected in (("INTERVAL '2' MINUTES", 120_000), ("'1 hour 30 minutes'", 5_400_000), ("'500 milliseconds'", 500)):
        again = action_of(f"CREATE STREAM s (ts timestamp) EVENT TIME ts DELAY {delay}")
        assert isinstance(again, CreateStream)
        assert again.declaration.delay_ms == expected


def test_a_stream_may_be_the_result_of_a_query() -> None:
    found = action_of("CREATE STREAM late AS\n  SELECT ts FROM flights")
    assert isinstance(found, CreateResult)
    assert (found.name, found.sql.split("\n")[1]) == ("late", "  SELECT ts FROM flights")
    in_the_query = SbonError("unknown-stream", "there is no stream 'flights'", where="line 2, column 18")
    assert with_position(in_the_query, found.positions).where == "line 2, column 18"


def test_a_view_keeps_the_lines_and_columns_of_its_text() -> None:
    found = action_of("create view late AS -- of more than\n  SELECT ts FROM flights")
    assert isinstance(found, CreateView)
    assert (found.view.name, found.view.sql.strip()) == ("late", "SELECT ts FROM flights")
    assert found.view.sql.split("\n")[1] == "  SELECT ts FROM flights"


def test_sources_are_attached_and_detached_and_streams_dropped() -> None:
    found = action_of("ATTACH FILE '/srv/it''s.csv' TO trades AT london AS `main` WITH (replay = 60, header = FALSE, null = '-')")
    assert isinstance(found, Attach)
    assert found[:5] == (
        "trades",
        "file",
        "london",
        "main",
        {"path": "/srv/it's.csv", "replay": 60, "header": False, "null": "-"},
    )
    made = action_of('attach Generator to clicks with (rate = 5, columns = {"page": {"kind": "choice", "values": ["/", "(;)"]}})')
    assert isinstance(made, Attach)
    assert (made.connector, made.source("here").name) == ("generator", "here")
    assert made.options["columns"]["page"]["values"] == ["/", "(;)"]
    for text, expected in (
        ("DETACH main FROM trades", ("trades", "main", "")),
        ("detach from trades at new-york", ("trades", "", "new-york")),
        ("DETACH FROM trades", ("trades", "", "")),
    ):
        detached = action_of(text)
        assert isinstance(detached, Detach)
        assert detached[:3] == expected
    for text, view in (("drop stream `trades`", False), ("DROP VIEW trades", True)):
        dropped = action_of(text)
        assert isinstance(dropped, DropStream)
        assert (dropped.stream, dropped.view) == ("trades", view)


WRONG = [
    ("CREATE TABLE t (a int)", "line 1, column 8", "STREAM is expected here"),
    ("CREATE STREAM", "line 1, column 14", "the name of the stream is expected here"),
    ("CREATE STREAM t ts timestamp", "line 1, column 17", "( is expected here"),
    ("CREATE STREAM t (ts timestamp", "line 1, column 17", "a closing bracket is missing"),
    ("CREATE STREAM t (ts timestamp,\n  price money) EVENT TIME ts", "line 2, column 3", "no type 'money'"),
    ("CREATE STREAM t (a map<string, int>, b int) EVENT TIME a", "line 1, column 18", "no type 'map<string, int>'"),
    ("CREATE STREAM t (ts timestamp, s struct<a: int, b: int>, x) EVENT TIME ts", "line 1, column 32", "no type 'struct<a: int"),
    ("CREATE STREAM t (ts timestamp, x) EVENT TIME ts", "line 1, column 32", "'x' is not a column"),
    ("CREATE STREAM t (ts timestamp)", "line 1, column 31", "EVENT is expected here"),
    ("CREATE STREAM t (ts timestamp) EVENT TIME ts DELAY '3 moons'", "line 1, column 52", "is no length of time"),
    ("CREATE STREAM Trades (ts timestamp) EVENT TIME ts", "line 1, column 15", "has a character that is not allowed"),
    ("CREATE STREAM t (ts timestamp) EVENT TIME ts PRIMARY", "line 1, column 46", "nothing more is expected here"),
    ("ATTACH FILE trades.csv TO t", "line 1, column 13", "the path of a file is expected here, in single quotes"),
    ("ATTACH http t", "line 1, column 13", "TO is expected here"),
    ("ATTACH http TO t WITH (keys)", "line 1, column 28", "= is expected here"),
    ("ATTACH http TO t WITH (keys = many)", "line 1, column 31", "a value is expected here"),
    ("ATTACH http TO t WITH (a = 1, a = 2)", "line 1, column 31", "a is given twice"),
    ("ATTACH http TO t AT a AT b", "line 1, column 23", "nothing more is expected here"),
    ("DETACH jfk", "line 1, column 11", "FROM is expected here"),
    ("DROP flights", "line 1, column 6", "STREAM is expected here"),
    ("CREATE VIEW v SELECT 1", "line 1, column 15", "AS is expected here"),
    ("CREATE VIEW v AS ", "line 1, column 17", "a query is expected here"),
    ("CREATE VIEW V AS SELECT 1", "line 1, column 13", "has a character that is not allowed"),
    ("DROP STREAM a b", "line 1, column 15", "nothing more is expected here"),
]


@pytest.mark.parametrize("text, place, message", WRONG)
def test_an_error_has_its_position(text: str, place: str, message: str) -> None:
    with pytest.raises(SbonError) as refused:
        action_of(text)
    assert (refused.value.where, message in refused.value.message) == (place, True), refused.value.message


@pytest.mark.parametrize(
    "code, where, place",
    [
        ("bad-event-time", "event_time", "line 1, column 43"),
        ("bad-name", "name", "line 1, column 15"),
        ("stream-exists", "", "line 1, column 15"),
        ("node-unreachable", "", ""),
        ("bad-schema", "schema", "line 1, column 18"),
        ("other", "elsewhere", "elsewhere"),
    ],
)
def test_a_refusal_of_the_node_is_placed_by_the_field_it_names(code: str, where: str, place: str) -> None:
    found = action_of("CREATE STREAM t (ts timestamp) EVENT TIME ts")
    assert isinstance(found, CreateStream)
    assert with_position(SbonError(code, "no", where=where), found.positions).where == place


def test_the_node_does_what_statements_say(api: str, node: Any) -> None:
    text = (
        f"{CREATE}; ATTACH FILE 'a.csv' TO trades WITH (replay = 2); DETACH jfk FROM flights; DROP STREAM flights; SHOW QUERY q1"
    )
    result = run(api, "sql", "-c", text)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(
        "trades created\na attached to trades at a\njfk detached from flights\nflights dropped\nq1 running"
    )
    assert [one.name for one in node.declared] == ["trades"]
    (source,) = node.attached
    assert (source.node, source.connector, source.options["replay"]) == ("a", "file", 2)
    assert source.options["path"].endswith("/a.csv")
    assert source.options["path"].startswith("/")
    assert node.stopped == ["flights/jfk", "flights"]
    told = run(api, "sql", "--json", "-c", "ATTACH http TO flights").stdout
    assert lines(told)[0]["entry"]["declaration"]["name"] == "flights"


def test_a_refusal_points_at_the_part(api: str, node: Any) -> None:
    refused = run(api, "sql", "-c", "DETACH none FROM\n  flights")
    assert refused.exit_code == 1
    assert "error: line 1, column 8: flights has no source 'none'\n  DETACH none FROM\n         ^\n" in refused.stderr


NONE = "none (ts timestamp) EVENT TIME ts"


@pytest.mark.parametrize(
    "text, said, done",
    [
        (f"CREATE STREAM IF NOT EXISTS {NONE}", "none created", (["none"], [], [])),
        (
            f"CREATE STREAM {NONE}; CREATE STREAM IF NOT EXISTS {NONE}",
            "none exists already, and stays as it is",
            (["none"], [], []),
        ),
        ("CREATE STREAM IF NOT EXISTS flights AS SELECT 1", "flights exists already, and stays as it is", ([], [], [])),
        ("CREATE VIEW IF NOT EXISTS none AS SELECT 1", "none created", ([], ["SELECT 1"], [])),
        ("CREATE VIEW IF NOT EXISTS flights AS SELECT 1", "flights exists already, and stays as it is", ([], [], [])),
        ("CREATE OR REPLACE VIEW none AS SELECT 1", "none created", ([], ["SELECT 1"], [])),
        (
            "CREATE VIEW none AS SELECT 1; CREATE OR REPLACE VIEW none AS SELECT 2",
            "none replaced",
            ([], ["SELECT 1", "SELECT 2"], []),
        ),
        ("DROP STREAM IF EXISTS none", "there is no none", ([], [], [])),
        ("DROP VIEW IF EXISTS none", "there is no none", ([], [], [])),
        ("DROP STREAM IF EXISTS flights", "flights dropped", ([], [], ["flights"])),
        ("CREATE STREAM if (ts timestamp) EVENT TIME ts", "if created", (["if"], [], [])),
    ],
)
def test_what_exists_or_does_not_is_no_error(api: str, node: Any, text: str, said: str, done: tuple[list[str], ...]) -> None:
    result = run(api, "sql", "-c", text)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, said), result.stderr
    assert ([one.name for one in node.declared], [one.sql.strip() for one in node.views], node.stopped) == done


def test_a_view_that_cannot_be_replaced_stays(api: str, node: Any) -> None:
    assert run(api, "sql", "-c", "CREATE VIEW none AS SELECT 1").exit_code == 0
    node.refuse_views = [SbonError("unresolved-column", "no column x", where="line 1, column 42")]
    refused = run(api, "sql", "-c", "CREATE OR REPLACE VIEW none AS SELECT 1 + x")
    assert (refused.exit_code, "line 1, column 42: no column x" in refused.stderr) == (1, True)
    assert ([one.sql.strip() for one in node.views], node.stopped) == (["SELECT 1"], [])
    assert run(api, "sql", "-c", "CREATE OR REPLACE VIEW none AS SELECT 2").exit_code == 0
    assert [one.replace for one in node.views] == [False, True]
