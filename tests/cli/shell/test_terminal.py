"""``sbon sql`` on a terminal of its own, typed at as a person would, and with statements from elsewhere."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.history import FileHistory

from sbon_cli.shell.prompt import history
from sbon_protocol.api.delivery import Finished
from sbon_protocol.errors import SbonError
from tests.api.scripted_node import WAIT
from tests.cli.commands import FINISHED, frame, lines, run
from tests.cli.shell.terminal import CTRL_C, CTRL_D, TAB, UP, Terminal


@contextmanager
def shell(api: str, state: Path) -> Iterator[Terminal]:
    """At its first prompt."""
    terminal = Terminal(state, "--node", api, "sql")
    try:
        terminal.prompted(1)
        yield terminal
    finally:
        terminal.close()


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_queries_show_their_rows_and_ctrl_c_stops_the_query_and_not_the_shell(api: str, node: Any, tmp_path: Path) -> None:
    node.script = [[frame(1, 1, 22), FINISHED], [frame(1, 333), WAIT]]
    with shell(api, tmp_path) as terminal:
        terminal.type("SELECT x,\r")
        terminal.until("   ->")
        terminal.type("name FROM flights;\r")
        terminal.until("22  r22", "q1 finished: 2 rows")
        terminal.prompted(2)
        terminal.type("SELECT * FROM flights;\r")
        terminal.until("333  r333")
        assert node.stopped == []
        terminal.type(CTRL_C)
        terminal.until("stopped q1 after 1 row")
        assert node.stopped == ["q1"]
        terminal.prompted(3)
        terminal.type("SELECT half" + CTRL_C)
        terminal.prompted(4)
        terminal.type("SHOW STREAMS;\r")
        terminal.until("jfk@a")
        terminal.prompted(5)
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    assert [s.sql for s in node.submitted] == ["SELECT x,\nname FROM flights", "SELECT * FROM flights"]


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_plans_and_placements_are_explained(api: str, node: Any, tmp_path: Path) -> None:
    with shell(api, tmp_path) as terminal:
        terminal.type("EXPLAIN SELECT 1;\r")
        terminal.until("not submitted; by", "25.0%")
        terminal.prompted(2)
        terminal.type("EXPLAIN PLACEMENT QUERY q1;\r")
        terminal.until("q1 running; by consumer")
        terminal.type("\\quit\r")
        assert terminal.end() == 0
    assert [question.sql.strip() for question in node.asked] == ["SELECT 1"]


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_errors_point_at_their_position_and_the_shell_continues(api: str, node: Any, tmp_path: Path) -> None:
    node.refuse_submit = SbonError("no-such-column", "there is no column y", where="line 1, column 8", hint="there are x, name")
    with shell(api, tmp_path) as terminal:
        terminal.type("SELECT y FROM flights;\r")
        shown = terminal.until("error: line 1, column 8: there is no column y", "hint: there are x, name")
        assert "\n  SELECT y FROM flights\n         ^\n" in shown
        terminal.prompted(2)
        terminal.type("SHOW TABLES;\r")
        terminal.until("write SHOW STREAMS, QUERIES, MEMBERS, STREAM name or QUERY name")
        terminal.type("quit\r")
        assert terminal.end() == 0


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_tab_completes_what_the_node_knows_and_the_history_outlives_the_shell(api: str, node: Any, tmp_path: Path) -> None:
    node.script = [[frame(1, 1), FINISHED]] * 2
    with shell(api, tmp_path) as terminal:
        terminal.type("DESCRIBE fl" + TAB)
        terminal.until("DESCRIBE flights")
        terminal.type(";\r")
        terminal.until("timestamp")
        terminal.prompted(2)
        terminal.type("SELECT delay FROM flights;\r")
        terminal.until("q1 finished: 1 row")
        terminal.prompted(3)
        terminal.type("\\quit\r")
        assert terminal.end() == 0
    kept = tmp_path / "sbon" / "sql_history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with shell(api, tmp_path) as terminal:
        terminal.type(UP)
        terminal.until("\\quit")
        terminal.type(UP)
        terminal.until("SELECT delay FROM flights;")
        terminal.type("\r")
        terminal.until("q1 finished: 1 row")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    assert [s.sql for s in node.submitted] == ["SELECT delay FROM flights"] * 2


def test_a_node_out_of_reach_is_code_3(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "--node", "http://127.0.0.1:1", "sql")
    terminal.until("no node answers")
    assert terminal.end() == 3


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_where_no_history_can_be_kept_the_shell_says_so_and_works(api: str, node: Any, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a folder")
    with shell(api, tmp_path / "state") as terminal:
        assert "no history" in terminal.text
        terminal.type("SHOW STREAMS;\r")
        terminal.until("jfk@a")
        terminal.type(CTRL_D)
        assert terminal.end() == 0


def test_statements_of_a_file_run_until_one_fails(api: str, node: Any, tmp_path: Path) -> None:
    file = tmp_path / "all.sql"
    file.write_text("SHOW STREAMS;\n-- rows\nSELECT x\nFROM flights;\nSHOW QUERIES")
    node.script = [[frame(1, 1, 2), FINISHED], [Finished(state="failed", reason="disk full")]]
    result = run(api, "sql", "-f", str(file), "--json")
    assert result.exit_code == 0, result.stderr
    streams, *rows, query = lines(result.stdout)
    assert (streams["entry"]["declaration"]["name"], [row["x"] for row in rows], query["id"]) == ("flights", [1, 2], "q1")
    assert run(api, "sql", "-f", str(file)).exit_code == 1
    file.write_text("SHOW MEMBERS;\n\n  SHOW ME;\nSHOW STREAMS;")
    refused = run(api, "sql", "-f", str(file), "--json")
    assert (refused.exit_code, len(lines(refused.stdout))) == (1, 2)
    assert refused.stderr.splitlines()[0] == f"error: {file}, line 3, column 8: SHOW what?"
    assert run(api, "sql", "-f", str(tmp_path / "none.sql")).exit_code == 2


@pytest.mark.parametrize(
    "statement, column, field",
    [
        ("SHOW STREAM nope", 15, "stream"),
        ("describe /* it */ `nope`", 21, "stream"),
        ("SHOW QUERY nope", 14, "query"),
        ("usage nope", 9, "query"),
        ("STOP QUERY nope", 14, "query"),
        ("EXPLAIN PLACEMENT QUERY nope", 27, "query"),
    ],
)
def test_an_unknown_name_is_pointed_at(
    api: str, node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, column: int, field: str
) -> None:
    async def unknown(self: Any, *args: Any, **more: Any) -> Any:
        raise SbonError(f"unknown-{field}", f"there is no {field} 'nope'", where=field)

    for method in ("stream", "query", "query_usage", "stop_query", "explain_query", "explain_query_placement"):
        monkeypatch.setattr(type(node), method, unknown)
    file = tmp_path / "all.sql"
    file.write_text(f"SHOW MEMBERS;\n  {statement};")
    shown = run(api, "sql", "-f", str(file)).stderr.splitlines()
    assert shown[0] == f"error: {file}, line 2, column {column}: there is no {field} 'nope'"
    assert shown[1:3] == [f"  {statement}", " " * (column - 1) + "^"]


def test_statements_of_a_pipe_and_of_the_command_line(api: str, node: Any) -> None:
    node.script = [[frame(1, 7), FINISHED]]
    assert [row["x"] for row in lines(run(api, "sql", stdin="SELECT x FROM flights").stdout)] == [7]
    told = lines(run(api, "sql", "--json", "-c", "describe flights; usage q1; stop q1; \\quit\n; show members").stdout)
    assert ("entry" in told[0], told[1]["byte_ms"]) == (True, 50_000.0)
    assert (told[2]["state"], len(told)) == ("stopped", 3)
    assert run(api, "sql", "-c", "SELECT 1", "-f", "x.sql").exit_code == 2


def test_queries_are_placed_as_the_command_says(api: str, node: Any) -> None:
    node.script = [[FINISHED]]
    flags = ("--strategy", "optimal", "--max-delay", "80ms", "--join-window", "1h")
    assert run(api, "sql", *flags, "-c", "SELECT 1; EXPLAIN SELECT 2").exit_code == 0
    (sent,), (asked,) = node.submitted, node.asked
    assert (sent.strategy, sent.max_delay_ms, sent.join_window_ms) == ("optimal", 80.0, 3_600_000)
    assert (asked.strategy, asked.sql.strip(), json.dumps(asked.max_delay_ms)) == ("optimal", "SELECT 2", "80.0")


def test_the_history_s_older_half_goes_when_it_has_grown_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbon_cli.shell.prompt.MAX_HISTORY_BYTES", 2000)
    kept = tmp_path / "sql_history"
    for number in range(200):
        FileHistory(str(kept)).append_string(f"SELECT {number};")
    found = list(history(kept).load_history_strings())
    assert found[0] == "SELECT 199;"
    assert 10 < len(found) < 100
    assert found == [f"SELECT {number};" for number in range(199, 199 - len(found), -1)]
