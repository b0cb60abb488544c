"""Commands against a node on a real port: what is asked, what is printed, how they exit."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from sbon_cli import acknowledge, follow
from sbon_cli.main import VERBS, sbon
from sbon_cli.stream import connector_of, milliseconds_of
from sbon_node.connectors.delivered import Finished, Rows
from sbon_node.engine.interface import Column
from sbon_node.errors import SbonError


def run(api: str, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(sbon, ["--node", api, *arguments], input=stdin)


def frame(number: int, *values: int, stream: str = "o1") -> Rows:
    rows = tuple((v, f"r{v}") for v in values)
    return Rows(stream=stream, number=number, columns=("x", "name"), rows=rows, watermark_ms=0, delay_ms=3)


FINISHED = Finished(state="finished")
READS = [
    (("members",), lambda x: [m["name"] for m in x] == ["a", "b"]),
    (("status",), lambda x: x["counters"] == {"bad-datagram": 3}),
    (("stream", "list"), lambda x: x[0]["entry"]["declaration"]["name"] == "flights"),
    (("stream", "show", "flights"), lambda x: x["sources"][0]["rows"] == 12),
    (("query", "list"), lambda x: x[0]["id"] == "q1"),
    (("query", "show", "q1"), lambda x: x["links"][0]["bytes"] == 4096),
    (("query", "bill", "q1"), lambda x: x["whole_byte_ms"] == 200_000.0),
]


@pytest.mark.parametrize("arguments, holds", READS)
def test_results_are_json_in_a_pipe(api: str, arguments: tuple[str, ...], holds: Any) -> None:
    result = run(api, *arguments)
    assert result.exit_code == 0, result.output
    assert holds(json.loads(result.stdout))
    assert result.stderr == ""


TABLES = [
    (("members",), ["node", "rtt ms", "91.2", "measured"]),
    (("status",), ["cluster", "bad-datagram", "error 0.50"]),
    (("stream", "list"), ["flights", "ts, delay", "jfk@a"]),
    (("stream", "show", "flights"), ["timestamp", "jfk", "running", "12"]),
    (("query", "list"), ["q1", "running", "SELECT * FROM flights"]),
    (("query", "show", "q1"), ["o1", "4.1 kB", "45.5"]),
    (("query", "bill", "q1"), ["relaxation", "1.0 kB", "25.0% of shipping everything"]),
]


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One too simple for colours; tests/cli/test_main.py runs a command on a real one."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda stream: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize("arguments, words", TABLES)
def test_results_are_tables_on_a_terminal(
    api: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: list[str]
) -> None:
    on_a_terminal(monkeypatch)
    result = run(api, *arguments)
    assert result.exit_code == 0, result.output
    for word in words:
        assert word in result.stdout


def test_a_refusal_is_one_line_with_a_hint_on_stderr(api: str) -> None:
    result = run(api, "stream", "show", "none")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == ["error: there is no stream 'none'", "  hint: see: sbon stream list"]


def test_a_node_out_of_reach_is_code_3() -> None:
    result = run("http://127.0.0.1:1", "status")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "no node answers at http://127.0.0.1:1" in result.stderr


@pytest.mark.parametrize("api", ["", "ftp://x", "http://", "http://127.0.0.1:99999", "http://[::1"])
def test_what_is_no_url_is_code_2(api: str) -> None:
    result = run(api, "members")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: --node, SBON_API: {api!r} is not the URL of a node's API")


def test_a_cluster_s_wrong_setting_is_refused_before_anything_starts(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    for setting, said in (("streams.reconnect_s=fast", "must be a number"), ("streams.reconnect_s", "is not SECTION.KEY=VALUE")):
        result = CliRunner().invoke(sbon, ["cluster", "up", "--dir", str(folder), "--set", setting])
        assert result.exit_code == 2
        assert said in result.stderr
        assert not folder.exists()


@pytest.mark.parametrize("arguments", [("stream", "create", "s"), ("no-such-verb",), ("stream", "attach", "s"), ("submit",)])
def test_wrong_usage_is_code_2(api: str, arguments: tuple[str, ...]) -> None:
    assert run(api, *arguments).exit_code == 2


def test_help_names_the_exit_codes_and_every_verb_has_a_word_of_help() -> None:
    text = CliRunner().invoke(sbon, ["--help"]).output
    assert "130  interrupted" in text
    for verb in VERBS:
        assert verb in text
        assert CliRunner().invoke(sbon, [verb, "--help"]).exit_code == 0


def test_a_stream_is_declared_and_a_source_attached(api: str, node: Any) -> None:
    create = ("stream", "create", "flights", "--schema", "ts timestamp, d DECIMAL(10,2)", "--event-time", "ts", "--delay", "5m")
    assert run(api, *create).exit_code == 0
    assert node.declared[0].schema == (Column("ts", "timestamp"), Column("d", "decimal(10,2)"))
    assert node.declared[0].delay_ms == 300_000
    assert run(api, "stream", "attach", "flights", "--file", "x.csv", "--replay", "60", "--node", "b").exit_code == 0
    source = node.attached[0]
    assert (source.node, source.name, source.connector) == ("b", "b", "file")
    assert source.options == {"path": str(Path("x.csv").absolute()), "replay": 60.0}


def test_a_bad_schema_names_its_column(api: str, node: Any) -> None:
    result = run(api, "stream", "create", "s", "--schema", "ts timestamp, a strin", "--event-time", "ts")
    assert (result.exit_code, node.declared) == (2, [])
    assert "column 2, a: no type 'strin'" in result.stderr


def test_a_declaration_is_refused_in_the_words_of_the_command_line(api: str, node: Any) -> None:
    result = run(api, "stream", "create", "Flights", "--schema", "ts timestamp", "--event-time", "ts")
    assert (result.exit_code, node.declared) == (2, [])
    assert "Error: NAME: lower case letters" in result.stderr
    result = run(api, "stream", "attach", "flights", "--generator", "--rate", "0")
    assert (result.exit_code, node.attached) == (2, [])
    assert "Error: --rate: expected `float` > 0.0" in result.stderr


def test_durations() -> None:
    assert [milliseconds_of(t) for t in ("0s", "500ms", "1.5s", "2 min", "1h")] == [0, 500, 1500, 120_000, 3_600_000]
    with pytest.raises(click.UsageError):
        milliseconds_of("5")


NOTHING: dict[str, Any] = {
    "connector": "",
    "path": None,
    "format_": None,
    "replay": None,
    "generator": False,
    "rate": None,
}
CONNECTORS = [
    ({"generator": True, "rate": 5.0}, ("seed=7",), ("generator", {"seed": 7, "rate": 5.0})),
    ({"connector": "http"}, ('headers={"a": 1}', "path=/x"), ("http", {"headers": {"a": 1}, "path": "/x"})),
    ({"path": "/x.csv", "connector": "file"}, (), ("file", {"path": "/x.csv"})),
]


@pytest.mark.parametrize("given, options, expected", CONNECTORS)
def test_short_forms_name_a_connector(given: dict[str, Any], options: tuple[str, ...], expected: Any) -> None:
    assert connector_of(options, **{**NOTHING, **given}) == expected


@pytest.mark.parametrize("given", [{}, {"path": "x", "generator": True}, {"generator": True, "replay": 1.0}])
def test_contradicting_forms_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError):
        connector_of((), **{**NOTHING, **given})


# -- submit and follow ------------------------------------------------------------------------------------------------


def test_submit_prints_rows_as_ndjson_and_acknowledges_them(api: str, node: Any) -> None:
    node.script = [[frame(1, 1, 2), frame(2), frame(3, 3), FINISHED]]
    result = run(api, "submit", "select 1")
    assert result.exit_code == 0
    assert [json.loads(line) for line in result.stdout.splitlines()] == [{"x": i, "name": f"r{i}"} for i in (1, 2, 3)]
    assert node.acknowledged[-1] == {"o1": 3}
    assert "placing 1 operator [by relaxation]" in result.stderr
    assert "q1 finished: 3 rows" in result.stderr


def test_many_frames_cost_few_acknowledgements(api: str, node: Any) -> None:
    node.script = [[*(frame(number, number) for number in range(1, 1001)), FINISHED]]
    started = time.monotonic()
    assert run(api, "query", "follow", "q1").exit_code == 0
    numbers = [told["o1"] for told in node.acknowledged]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 1000
    assert len(numbers) <= (time.monotonic() - started) / acknowledge.PAUSE_S + 2


def test_a_refused_acknowledgement_is_made_again(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledge, "RETRY_S", 0.0)
    node.refuse_acknowledgements = [SbonError("disk-full", "no room for more"), SbonError("not-received", "not yet")]
    node.script = [[frame(1, 1), FINISHED]]
    result = run(api, "query", "follow", "q1")
    assert (result.exit_code, node.acknowledged) == (0, [{"o1": 1}])
    assert result.stderr.count("cannot acknowledge rows yet: no room for more") == 1


def test_whoever_detaches_has_acknowledged_what_was_printed(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledge, "PAUSE_S", 60.0)
    printed: list[int] = []

    def interrupted(written: Rows) -> None:
        if written.number > 2:
            raise KeyboardInterrupt
        printed.append(written.number)

    monkeypatch.setattr("sbon_cli.rows.write_ndjson", interrupted)
    node.script = [[*(frame(number, number) for number in (1, 2, 3)), FINISHED]]
    assert run(api, "query", "follow", "q1").exit_code == 130
    assert (printed, node.acknowledged[-1]) == ([1, 2], {"o1": 2})


@pytest.mark.parametrize("consumer_api, why", [("127.0.0.1:1", "no node answers"), ("", "the node a answers there")])
def test_a_consumer_whose_api_is_out_of_reach_is_named_with_what_to_do(api: str, node: Any, consumer_api: str, why: str) -> None:
    node.consumer, node.consumer_api = "b", consumer_api or api.removeprefix("http://")
    for command in (("query", "follow", "q1"), ("submit", "select 1", "--consumer", "b"), ("query", "follow", "q1", "--rm")):
        result = run(api, *command)
        assert (result.exit_code, result.stdout) == (3, "")
        assert f"the rows arrive at b, whose API cannot be reached from here at {node.consumer_api}: {why}" in result.stderr
        assert "--api-bind" in result.stderr
    assert node.submitted == []
    assert node.stopped == ["q1"]


def test_rows_are_aligned_lines_for_people(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    node.script = [[frame(1, 1, 22), FINISHED]]
    assert run(api, "submit", "select 1").stdout.splitlines() == [" x  name", " 1  r1", "22  r22"]


def test_following_survives_lost_connections_without_loss_or_repetition(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_PAUSES_S", (0.0,))
    node.script = [
        [frame(1, 1), frame(1, 7, stream="o2"), None],
        [SbonError("already-followed", "the old connection is still there")],
        [SbonError("not-followable", "the sink is not open yet")],
        [frame(1, 1), frame(2, 2), FINISHED],
    ]
    result = run(api, "query", "follow", "q1")
    assert result.exit_code == 0
    assert [json.loads(line)["x"] for line in result.stdout.splitlines()] == [1, 7, 2]
    assert node.after == [{}, *[{"o1": 1, "o2": 1}] * 3]
    assert "lost the node" in result.stderr


def test_a_query_that_ended_meanwhile_is_told_by_its_record(api: str, node: Any) -> None:
    node.state = "stopped"
    node.script = [[SbonError("not-followable", "no sink")]]
    result = run(api, "query", "follow", "q1")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "q1 stopped: 0 rows" in result.stderr


def test_a_failed_query_is_code_1(api: str, node: Any) -> None:
    node.script = [[frame(1, 1), Finished(state="failed", reason="o1 at b: disk full")]]
    result = run(api, "query", "follow", "q1")
    assert result.exit_code == 1
    assert "q1 failed: o1 at b: disk full" in result.stderr


def test_someone_else_follows_already(api: str, node: Any) -> None:
    node.script = [[SbonError("already-followed", "somebody follows q1 already")]]
    result = run(api, "query", "follow", "q1")
    assert result.exit_code == 1
    assert "somebody follows q1 already" in result.stderr


@pytest.mark.parametrize("tied, stopped", [((), []), (("--rm",), ["q1"])])
def test_ctrl_c_detaches_and_with_rm_stops(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch, tied: tuple[str, ...], stopped: list[str]
) -> None:
    def interrupted(written: Rows) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sbon_cli.rows.write_ndjson", interrupted)
    node.script = [[frame(1, 1), FINISHED]]
    result = run(api, "submit", "select 1", *tied)
    assert result.exit_code == 130
    assert node.stopped == stopped
    assert node.acknowledged == []


def test_a_refused_submission_lists_who_refused(api: str, node: Any) -> None:
    node.refuse_submit = SbonError("no-room", "no node has room for o1", hint="add nodes", details=("a: cores", "b: memory"))
    result = run(api, "submit", "select 1")
    assert result.exit_code == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[-4:] == ["error: no node has room for o1", "  - a: cores", "  - b: memory", "  hint: add nodes"]


def test_sql_comes_from_a_file_or_standard_input(api: str, node: Any, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("select 2")
    assert run(api, "submit", "--no-follow", f"@{tmp_path}/q.sql").exit_code == 0
    assert run(api, "submit", "--no-follow", "-", stdin="select 3").exit_code == 0
    assert [s.sql for s in node.submitted] == ["select 2", "select 3"]
    assert run(api, "submit", f"@{tmp_path}/none.sql").exit_code == 2


def test_results_may_go_to_a_file_at_the_consumer(api: str, node: Any) -> None:
    result = run(
        api, "submit", "select 1", "--to", "/data/out.bin", "--format", "parquet", "--consumer", "b", "--strategy", "producer"
    )
    assert result.exit_code == 0
    sent = node.submitted[0]
    assert (sent.sink.kind, sent.sink.options) == ("file", {"path": "/data/out.bin", "format": "parquet"})
    assert (sent.consumer, sent.strategy) == ("b", "producer")
    assert json.loads(result.stdout)["id"] == "q1"


def test_stopping_joining_and_leaving(api: str, node: Any) -> None:
    assert json.loads(run(api, "query", "stop", "q1").stdout)["state"] == "stopped"
    assert run(api, "stream", "drop", "flights").exit_code == 0
    assert "2 members" in run(api, "join", "b:7400").output
    assert run(api, "join", "dead:1").exit_code == 1
    assert run(api, "leave", "--yes").exit_code == 0
    assert run(api, "leave", "--yes", "--force").exit_code == 0
    assert node.stopped == ["q1", "flights", "node", "node, by force"]
