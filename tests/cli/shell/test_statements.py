"""Text cut into statements, what each asks for, where its errors are, and what may come next in one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbon_cli.commands.queries.sql import statements_of
from sbon_cli.shell.actions import Describe, Explain, Help, Quit, Run, Show, ShowQuery, ShowUsage, Stop, action_of
from sbon_cli.shell.prompt import candidates, relations
from sbon_cli.shell.run import complain_at, pointed
from sbon_cli.shell.statements import Statement, blanked, complete, split
from sbon_protocol.errors import SbonError

CUT = [
    ("SELECT 1; SELECT 2", ["SELECT 1"], "SELECT 2"),
    ("SELECT ';' FROM a;", ["SELECT ';' FROM a"], ""),
    ("SELECT 'it\\'s; here';", ["SELECT 'it\\'s; here'"], ""),
    ("SELECT r'a\\'; b", ["SELECT r'a\\'"], "b"),
    ("SELECT bar'x;y';", ["SELECT bar'x;y'"], ""),
    ('SELECT "a;b", `c;d`; x', ['SELECT "a;b", `c;d`'], "x"),
    ("SELECT 1 -- a; b\n;", ["SELECT 1 -- a; b"], ""),
    ("/* a; /* b; */ c; */ SELECT 1;", ["/* a; /* b; */ c; */ SELECT 1"], ""),
    (";;  ; -- nothing\n", [], ""),
    ("SELECT 'open; ", [], "SELECT 'open;"),
    ("", [], ""),
]


@pytest.mark.parametrize("text, ended, rest", CUT)
def test_semicolons_end_statements_but_not_in_strings_names_and_comments(text: str, ended: list[str], rest: str) -> None:
    statements, left = split(text)
    assert [statement.text for statement in statements] == ended
    assert left.text == rest


def test_statements_know_where_they_begin() -> None:
    statements, rest = split("SELECT 1; SELECT 2\n;\n\n  SELECT\n 3")
    assert [(s.line, s.column) for s in (*statements, rest)] == [(1, 1), (1, 11), (4, 3)]


PIECES = st.sampled_from(
    ["SELECT", " ", "\n", ";", "'", '"', "`", "--", "/*", "*/", "\\", "x", "r", "1.5", "é", "'a;b'", "/* ; */"]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_nothing_is_lost_and_blanks_keep_places(text: str) -> None:
    statements, rest = split(text)
    lines = text.split("\n")
    for statement in (*statements, rest):
        if statement.text:
            assert lines[statement.line - 1][statement.column - 1 :].startswith(statement.text.split("\n")[0])
    assert len(blanked(text)) == len(text)
    assert blanked(text).count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "text, whole",
    [
        ("SELECT 1;", True),
        ("SELECT 1", False),
        ("SELECT 1;\n SELECT", False),
        ("", True),
        ("\\help", True),
        ("quit", True),
        ("'a;", False),
    ],
)
def test_enter_ends_what_is_complete(text: str, whole: bool) -> None:
    assert complete(text) is whole


ACTIONS = [
    ("SELECT 1 FROM a", Run("SELECT 1 FROM a")),
    ("show streams", Show("STREAMS")),
    ("SHOW Queries", Show("QUERIES")),
    ("show members", Show("MEMBERS")),
    ("DESCRIBE flights", Describe("flights")),
    ("desc STREAM `flights`", Describe("flights")),
    ("usage q-1", ShowUsage("q-1")),
    ("STOP query q1", Stop("q1")),
    ("explain query q1", Explain("", "q1", placement=False)),
    ("EXPLAIN PLACEMENT QUERY q1", Explain("", "q1", placement=True)),
    ("explain SELECT x", Explain("        SELECT x", "", placement=False)),
    ("explain -- why\nplacement SELECT x", Explain("              \n          SELECT x", "", placement=True)),
    ("show stream flights", Describe("flights")),
    ("SHOW QUERY q1", ShowQuery("q1")),
    ("\\help", Help()),
    ("\\q", Quit()),
    ("exit", Quit()),
]


@pytest.mark.parametrize("text, action", ACTIONS)
def test_a_statement_becomes_an_action(text: str, action: object) -> None:
    assert action_of(text) == action


@pytest.mark.parametrize(
    "text, place, hint",
    [
        ("SHOW TABLES", "line 1, column 6", "write SHOW STREAMS, QUERIES, MEMBERS, STREAM name or QUERY name"),
        ("SHOW", "line 1, column 5", "write SHOW STREAMS, QUERIES, MEMBERS, STREAM name or QUERY name"),
        ("DESCRIBE\n a b", "line 2, column 2", "write DESCRIBE STREAM"),
        ("stop", "line 1, column 5", "write STOP QUERY"),
        ("EXPLAIN", "line 1, column 8", "write EXPLAIN SELECT ..., EXPLAIN PLACEMENT SELECT ... or EXPLAIN QUERY name"),
        ("\\dance", "", "\\help lists the commands"),
    ],
)
def test_an_invalid_statement_is_refused_with_its_position(text: str, place: str, hint: str) -> None:
    with pytest.raises(SbonError) as refused:
        action_of(text)
    assert (refused.value.code, refused.value.where, refused.value.hint) == ("bad-statement", place, hint)


def test_an_error_has_a_caret_under_its_place(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    (_, second), _ = split("SELECT 1;\n\n SELECT a,\n   b FROM c;")
    complain_at(SbonError("no-such-column", "there is no b", where="line 2, column 4", hint="add it"), second, "q.sql")
    complain_at(SbonError("no-such-column", "there is no a", where="line 1, column 8"), second, "q.sql")
    complain_at(SbonError("no-capacity", "no node has capacity", details=("a: full",)), second)
    assert capsys.readouterr().err.splitlines() == [
        "error: q.sql, line 4, column 4: there is no b",
        "     b FROM c",
        "     ^",
        "  hint: add it",
        "error: q.sql, line 3, column 9: there is no a",
        "  SELECT a,",
        "         ^",
        "error: no node has capacity",
        "  - a: full",
    ]


def test_long_lines_are_cut_around_the_caret() -> None:
    rng = random.Random(3)
    for _ in range(500):
        text = "".join(rng.choices("abcdefg ", k=rng.randint(1, 200))).rstrip() or "a"
        column, width = rng.randint(1, len(text)), rng.randint(20, 80)
        shown, caret = pointed(text, 1, column, width)
        assert len(shown) <= width
        assert len(caret) <= width
        assert shown[len(caret) - 1 : len(caret)] == text[column - 1]
    assert pointed("one line", 3, 1, 40) == []
    assert pointed("SELECT", 1, 7, 40) == ["SELECT", "      ^"]


class Names:
    def streams(self) -> dict[str, tuple[str, ...]]:
        return {"flights": ("ts", "carrier", "dep_delay"), "weather": ("ts", "temp")}

    def sources(self) -> tuple[str, ...]:
        return ("jfk", "lga")

    def members(self) -> tuple[str, ...]:
        return ("london", "paris")

    def queries(self) -> tuple[str, ...]:
        return ("late", "large", "over")

    def live_queries(self) -> tuple[str, ...]:
        return ("late", "large")


NEXT = [
    ("", ["SELECT", "WITH", "EXPLAIN"]),
    ("sel", ["select"]),
    ("SEL", ["SELECT"]),
    ("SHOW ", ["STREAMS", "QUERIES", "MEMBERS"]),
    ("DESCRIBE ", ["flights", "weather"]),
    ("SELECT * FROM f", ["flights"]),
    ("SELECT * FROM flights f JOIN w", ["weather"]),
    ("USAGE l", ["late", "large"]),
    ("USAGE o", ["over"]),
    ("STOP ", ["late", "large"]),
    ("STOP o", []),
    ("STOP QUERY l", ["late", "large"]),
    ("STOP QUERY o", []),
    ("EXPLAIN QUERY o", ["over"]),
    ("EXPLAIN pl", ["placement"]),
    ("SHOW STREAM ", ["flights", "weather"]),
    ("SHOW QUERY o", ["over"]),
    ("cr", ["create stream", "create view"]),
    ("CREATE ", ["STREAM", "VIEW"]),
    ("CREATE VIEW v ", ["AS"]),
    ("CREATE VIEW v AS SELECT ts FROM w", ["weather"]),
    ("CREATE STREAM ", []),
    ("CREATE STREAM s (ts time", ["timestamp"]),
    ("CREATE STREAM s (ts timestamp) ", ["EVENT TIME", "DELAY", "COMMENT"]),
    ("DROP ", ["STREAM", "VIEW"]),
    ("DROP STREAM w", ["weather"]),
    ("ATTACH ", ["FILE", "tail", "http"]),
    ("ATTACH gen", ["generator"]),
    ("ATTACH FILE '/a.csv' ", ["TO"]),
    ("ATTACH FILE '/a.csv' TO ", ["flights", "weather"]),
    ("ATTACH FILE '/a.csv' TO flights AT p", ["paris"]),
    ("attach http to flights a", ["at", "as"]),
    ("DETACH ", ["jfk", "lga", "FROM"]),
    ("DETACH jfk FROM fl", ["flights"]),
    ("DETACH FROM flights AT ", ["london", "paris"]),
    ("SELECT date_tr", ["date_trunc("]),
    ("SELECT 'date_tr", []),
]


@pytest.mark.parametrize("before, expected", NEXT)
def test_completion_offers_what_may_come_next(before: str, expected: list[str]) -> None:
    assert candidates(before, before, Names())[: len(expected) or None] == expected


def test_columns_are_those_of_the_streams_that_are_read() -> None:
    whole = "SELECT de FROM flights AS f JOIN weather w ON f.ts = w.ts -- FROM none"
    assert relations(whole) == {"f": "flights", "w": "weather"}
    assert candidates("SELECT de", whole, Names())[0] == "dep_delay"
    assert candidates("SELECT w.", whole, Names()) == ["ts", "temp"]
    assert candidates("SELECT F.c", whole, Names()) == ["carrier"]
    assert candidates("SELECT de", "SELECT de", Names())[0] == "dep_delay"
    assert "dep_delay" not in candidates("SELECT de", "SELECT de FROM weather", Names())


def test_words_to_the_shell_need_no_semicolon_in_a_file() -> None:
    text = "SHOW STREAMS;\n\\help\nSELECT 'a\nquit\n';\nexit\nSELECT 2"
    assert [s.text for s in statements_of(text)] == ["SHOW STREAMS", "\\help", "SELECT 'a\nquit\n'", "exit", "SELECT 2"]
    assert statements_of("") == []
    assert statements_of("SELECT 1") == [Statement("SELECT 1")]
