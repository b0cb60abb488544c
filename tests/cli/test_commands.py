"""Commands against a node on a real port: requests, output and exit codes."""

from __future__ import annotations

import json
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sbon.model import Moving
from sbon_cli.client import Client
from sbon_cli.commands.queries.query import show_query_usage
from sbon_cli.commands.streams.stream import connector_of, show_stream
from sbon_cli.main import VERBS, sbon
from sbon_cli.options.durations import milliseconds_of
from sbon_cli.terminal.output import headings, print_table
from sbon_node.model.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_node.model.columns import Column
from sbon_node.model.moves import MoveProgress
from sbon_node.model.queries import MoveInfo, QueryInfo
from sbon_node.model.streams import SourceInfo, StreamInfo
from sbon_node.model.usage import LinkUsage, QueryUsage
from sbon_node.queries.listing import UNANSWERED_HEADER, Unanswered
from tests.cli.commands import FINISHED, frame, lines, on_a_terminal, run

LISTS = {("members",), ("members", "--near", "b"), ("stream", "list"), ("query", "list"), ("streams",), ("queries",)}
"""Commands that print a line for each; the others print one."""

READS = [
    (("members",), lambda x: [m["name"] for m in x] == ["a", "b"]),
    (("members", "--near", "b"), lambda x: x[1]["distance_ms"] == 100.0),
    (("rtt", "b"), lambda x: (x["measured_ms"], x["by"], x["estimate_source"]) == (91.25, "b", "measured")),
    (("rtt", "b", "--cached"), lambda x: (x["measured_ms"], x["estimate_source"]) == (None, "coordinates")),
    (("status",), lambda x: x["counters"] == {"bad-datagram": 3}),
    (("stream", "list"), lambda x: x[0]["entry"]["declaration"]["name"] == "flights"),
    (("stream", "show", "flights"), lambda x: x["sources"][0]["rows"] == 12),
    (("query", "list"), lambda x: x[0]["id"] == "q1"),
    (("streams",), lambda x: x[0]["sources"][0]["rows"] == 12),
    (("queries",), lambda x: len(x) == 1),
    (("usage", "q1"), lambda x: x["byte_ms"] == 50_000.0),
    (("query", "show", "q1"), lambda x: x["links"][0]["bytes"] == 4096),
    (("query", "usage", "q1"), lambda x: x["baseline_byte_ms"] == 200_000.0),
    (("explain", "--query", "q1"), lambda x: x["components"][1]["measured"]["selectivity"] == 0.25),
    (("explain", "SELECT 1"), lambda x: x["components"][1]["measured"]["selectivity"] is None),
]


@pytest.mark.parametrize("arguments, holds", READS)
def test_results_are_json_where_that_is_asked_for(
    api: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], holds: Any
) -> None:
    result = run(api, *arguments, "--json")
    assert result.exit_code == 0, result.output
    told = lines(result.stdout)
    assert holds(told if arguments in LISTS else told[0])
    assert result.stderr == ""
    assert run(api, *arguments, "--output", "json").stdout == result.stdout
    monkeypatch.setenv("SBON_OUTPUT", "json")
    assert run(api, *arguments).stdout == result.stdout


@pytest.mark.parametrize("arguments, holds", READS)
def test_a_description_is_a_table_in_a_pipe_as_on_a_terminal(
    api: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], holds: Any
) -> None:
    piped = run(api, *arguments)
    assert piped.exit_code == 0, piped.output
    assert "{" not in piped.stdout
    assert max(map(len, piped.stdout.splitlines())) < 400
    on_a_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "400")
    shown = run(api, *arguments).stdout
    assert sorted(piped.stdout.split()) == sorted(shown.split()) or arguments[0] == "explain"


def test_no_width_breaks_a_table_in_a_pipe(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    node.lost = [QueryInfo(id="st1", sql="", state="unreachable", reason=f"no {'answer ' * 8}", node="c")]
    heading, *rows = run(api, "query", "list").stdout.splitlines()
    assert (heading.split()[0], [row.split()[0] for row in rows]) == ("query", ["q1", "st1"])


def test_text_is_values_between_tabs_without_headings(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = run(api, "members", "--output", "text").stdout.splitlines()
    assert first.split("\t")[:5] == ["a", "alive", "a:7400", "a:7480", ""]
    assert second.split("\t")[4:6] == ["91.25", "measured"]
    node.script = [[frame(1, 1, 2), FINISHED], [frame(1, 1), FINISHED]]
    assert run(api, "submit", "select 1", "--output", "text").stdout == "1\tr1\n2\tr2\n"
    assert run(api, "submit", "select 1", "--output", "table").stdout.splitlines() == ["x  name", "1  r1"]
    monkeypatch.setenv("SBON_OUTPUT", "text")
    assert run(api, "stream", "list").stdout.startswith("flights\tts, delay\tts\t0\t")
    assert lines(run(api, "stream", "list", "--json").stdout)[0]["entry"]["version"] == 1


def test_forms_that_are_none_or_contradict_each_other_are_refused(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = run(api, "members", "--json", "--output", "table")
    assert (refused.exit_code, "--json and --output table contradict each other" in refused.stderr) == (2, True)
    monkeypatch.setenv("SBON_OUTPUT", "yaml")
    refused = run(api, "members")
    assert (refused.exit_code, "'yaml' is not one of 'table', 'json', 'text'" in refused.stderr) == (2, True)


def test_the_id_alone_is_printed_where_rows_are_not_followed(api: str, node: Any) -> None:
    assert run(api, "submit", "select 1", "--no-follow").stdout == "q1\n"
    assert lines(run(api, "submit", "select 1", "--no-follow", "--json").stdout)[0]["links"][0]["bytes"] == 4096


TABLES = [
    (("members",), ["node", "rtt ms", "91.2", "measured"]),
    (("members", "--within", "0.2s"), ["from here ms", "100.0", "estimated"]),
    (("rtt", "b", "a"), ["b to a", "by the coordinates", "98.5", "91.2", "1.5 s ago by b, the least of three pings", "used by"]),
    (("rtt", "b", "--cached"), ["98.5", "not lately"]),
    (("status",), ["cluster", "bad-datagram", "error 0.50", "drained     no"]),
    (("stream", "list"), ["flights", "ts, delay", "jfk@a"]),
    (("stream", "show", "flights"), ["timestamp", "jfk", "running", "12", "2.5", "late", "34"]),
    (("query", "list"), ["q1", "running", "SELECT * FROM flights"]),
    (("query", "show", "q1"), ["o1", "4.1 kB", "45.5", "0.5"]),
    (("query", "usage", "q1"), ["relaxation", "1.0 kB", "25.0% of sending all rows to the consumer"]),
    (("explain", "--query", "q1"), ["q1 running; by relaxation, rows to a", "└─ o1 at b ", " 0.250", "7 rows late", "25.0%"]),
    (("explain", "SELECT 1"), ["not submitted", "flights/jfk at b", "selectivity", "2.0 kB", "8.0 kB, 25.0%"]),
]


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


def test_a_list_of_queries_says_on_stderr_who_may_hold_more(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "no answer from c (dead), which holds its record"
    node.lost = [QueryInfo(id="st1", sql="", state="unreachable", reason=reason, node="c")]
    node.unanswered = [Unanswered("c", "dead"), Unanswered("d", "away")]
    told = [
        "no answer from c (dead): it may hold more of its queries",
        "no answer from d (away): it may hold queries that are not listed",
    ]
    result = run(api, "query", "list", "--json")
    assert (result.exit_code, result.stderr.splitlines()) == (0, told)
    assert [(found["id"], found["state"]) for found in lines(result.stdout)] == [("q1", "running"), ("st1", "unreachable")]
    assert Client(api).queries().unanswered == tuple(node.unanswered)
    on_a_terminal(monkeypatch)
    result = run(api, "query", "list")
    assert (result.exit_code, result.stderr.splitlines()) == (0, told)
    assert {"st1", "unreachable:", *reason.split()} <= set(result.stdout.split())


def test_nodes_without_an_answer_are_read_from_any_spelling_of_the_header() -> None:
    class Lowering(BaseHTTPRequestHandler):
        """As proxies write the names of headers."""

        def do_GET(self) -> None:
            self.send_response(200)
            for name, value in ((UNANSWERED_HEADER.lower(), "c=dead"), ("content-length", "2")):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Lowering) as server:
        answering = Thread(target=server.handle_request)
        answering.start()
        assert Client(f"http://127.0.0.1:{server.server_port}").queries().unanswered == (Unanswered("c", "dead"),)
        answering.join()


def test_the_directory_gets_the_options_as_requests(api: str, node: Any) -> None:
    for arguments in (("members",), ("members", "--near", "b", "--within", "30ms"), ("members", "--within", "1.5s")):
        assert run(api, *arguments).exit_code == 0
    assert node.sought == [("", None), ("b", 30.0), ("", 1500.0)]
    for arguments in (("rtt", "b"), ("rtt", "b", "c", "--measure"), ("rtt", "b", "c", "--cached")):
        assert run(api, *arguments).exit_code == 0
    assert [(q.pairs, q.max_age_s, q.cached) for q in node.rtts] == [
        ((("b", ""),), None, False),
        ((("b", "c"),), 0.0, False),
        ((("b", "c"),), None, True),
    ]


def test_a_failed_measurement_is_an_error_with_the_estimate(api: str) -> None:
    result = run(api, "rtt", "dead", "b")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == ["error: dead: dead did not answer 3 pings", "  - by the coordinates: 98.5 ms"]


def test_a_node_out_of_reach_is_code_3() -> None:
    result = run("http://127.0.0.1:1", "status")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "no node answers at http://127.0.0.1:1" in result.stderr


@pytest.mark.parametrize("api", ["", "ftp://x", "http://", "http://127.0.0.1:99999", "http://[::1"])
def test_an_invalid_url_exits_with_code_2(api: str) -> None:
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


WRONG = [
    ("stream", "create", "s"),
    ("no-such-verb",),
    ("stream", "attach", "s"),
    ("submit",),
    ("explain",),
    ("explain", "SELECT 1", "--query", "q1"),
    ("explain", "@no-such-file"),
    ("explain", "SELECT 1", "--strategy", "best"),
    ("members", "--within", "30"),
    ("rtt",),
    ("rtt", "a", "b", "c"),
    ("submit", "SELECT 1", "--rm", "--no-follow"),
    ("submit", "SELECT 1", "--rm", "--to", "rows.csv"),
]


@pytest.mark.parametrize("arguments", WRONG)
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
    assert "Error: --rate: must be more than 0" in result.stderr


def test_an_unreadable_file_is_reported_in_plain_words(api: str, tmp_path: Path) -> None:
    (tmp_path / "latin.sql").write_bytes(b"SELECT '\xe4'")
    for file, reason in (("none.sql", "No such file or directory"), ("latin.sql", "it is not UTF-8")):
        result = run(api, "submit", f"@{tmp_path / file}")
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {tmp_path / file} cannot be read: {reason}")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("explain", "@"), "Error: no file is named after @"),
        (("explain", "k1"), "Error: k1 is no SQL; to explain a query of the cluster: sbon explain --query k1"),
        (("stream", "create", "s", "--schema", "@", "--event-time", "ts"), "Error: --schema: no file is named after @"),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(api: str, node: Any, arguments: tuple[str, ...], said: str) -> None:
    result = run(api, *arguments)
    assert (result.exit_code, result.stderr.splitlines()[-1], node.asked) == (2, said, [])


def test_an_invalid_name_of_a_query_is_refused_with_the_rule(api: str, node: Any) -> None:
    result = run(api, "submit", "--no-follow", "--name", "Bad Name", "SELECT 1")
    assert (result.exit_code, node.submitted) == (1, [])
    assert (
        "name: has a character that is not allowed, or is too long: lower case letters, digits and - are allowed" in result.stderr
    )


def test_headings_are_not_broken_within_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table(headings(["penalty_mean_pct", "probes_mean", "queries"]), [(1.5, 2.5, 3)] * 2)
    words = " ".join(capsys.readouterr().out.split()).split()
    assert {"penalty", "mean", "pct", "probes", "queries"} <= set(words)


def test_bad_rows_are_reported_with_the_file_that_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    declared = StreamDeclaration(name="flights", schema=(Column("ts", "timestamp"),), event_time="ts")
    sources = [SourceDeclaration(stream="flights", name=name, node="b", connector="file") for name in ("jfk", "lga")]
    bad = SourceInfo(source=sources[0], state="ended", bad=3, dead_letters="/var/lib/sbon/jfk.ndjson")
    well = SourceInfo(source=sources[1], state="ended", dead_letters="/var/lib/sbon/lga.ndjson")
    show_stream(StreamInfo(entry=CatalogEntry(declaration=declared), sources=(bad, well)))
    said = capsys.readouterr().out
    assert "rows of jfk that could not be read, with their lines, at b: /var/lib/sbon/jfk.ndjson\n" in said
    assert "lga.ndjson" not in said


def test_durations() -> None:
    assert [milliseconds_of(t, "--delay") for t in ("0s", "500ms", "1.5s", "2 min", "1h")] == [0, 500, 1500, 120_000, 3_600_000]
    for text in ("5", "-1h", "1 fortnight", "", "1e3s", "h"):
        with pytest.raises(click.UsageError, match=r"--delay: .* is not a duration: write 500ms"):
            milliseconds_of(text, "--delay")


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


def test_moving_an_operator(api: str) -> None:
    *steps, moved = run(api, "query", "migrate", "q1", "b0", "--to", "paris", "--json").stdout.splitlines()
    assert [json.loads(step)["step"] for step in steps] == ["copying", "copying", "following"]
    assert json.loads(moved)["node"] == "paris"
    shown = run(api, "query", "migrate", "q1", "b0", "--to", "paris")
    assert shown.stdout == "b0 runs at paris: 1.0 kB of state copied, 0.25 s without rows\n"
    assert shown.stderr == "copying: 512 B of 1.0 kB\nfollowing: 3 frames behind\n"
    stopped = run(api, "query", "migrate", "q1", "b0", "--to", "paris", "--how", "stop")
    assert stopped.stderr.startswith("stopping\ncopying")
    refused = run(api, "query", "migrate", "q1", "b0", "--to", "full")
    assert refused.exit_code == 1
    assert "0.05 cores free" in refused.stderr


def test_cancelling_a_move(api: str) -> None:
    assert run(api, "query", "migrate", "q1", "b0", "--cancel").stdout == "cancelled: b0 goes on at b\n"
    assert json.loads(run(api, "query", "migrate", "q1", "b0", "--cancel", "--json").stdout)["node"] == "b"
    late = run(api, "query", "migrate", "q1", "committed", "--cancel")
    assert (late.exit_code, "it is too late" in late.stderr) == (1, True)
    for wrong in ((), ("--cancel", "--to", "paris")):
        assert run(api, "query", "migrate", "q1", "b0", *wrong).exit_code == 2


def test_ctrl_c_of_a_move_says_how_to_watch_and_cancel_it(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(client: object, *_: str) -> Any:
        yield Moving(step="copying")
        raise KeyboardInterrupt

    monkeypatch.setattr("sbon_cli.client.Client.move_operator", interrupted)
    result = run(api, "query", "migrate", "q1", "b0", "--to", "paris")
    assert result.exit_code == 130
    told = " ".join(result.stderr.split())
    assert "the move goes on" in told
    assert "sbon query show q1;" in told
    assert "sbon query migrate q1 b0 --cancel" in told


def test_a_move_under_way_is_shown(api: str, node: Any) -> None:
    node.move = MoveInfo(target="paris", step="copying", progress=MoveProgress(copied_bytes=512, total_bytes=1024))
    assert "running: moves b -> paris, copying: 512 B of 1.0 kB" in run(api, "query", "show", "q1").stdout


def test_stopping_joining_and_leaving(api: str, node: Any) -> None:
    assert json.loads(run(api, "query", "stop", "q1", "--json").stdout)["state"] == "stopped"
    assert run(api, "stream", "drop", "flights").exit_code == 0
    assert "2 members" in run(api, "join", "b:7400").output
    assert run(api, "join", "dead:1").exit_code == 1
    assert run(api, "leave", "--yes").exit_code == 0
    assert run(api, "leave", "--yes", "--force").exit_code == 0
    assert node.stopped == ["q1", "flights", "node", "node, by force"]


def test_a_bill_compares_sums_that_count_the_same_links(capsys: pytest.CaptureFixture[str]) -> None:
    """A link within a node costs nothing: its bytes are shown separately, and are in neither total."""
    line = partial(LinkUsage, latency_ms=50.0, byte_ms=1e6)
    inside = LinkUsage(stream="source/s@1/x", source_node="b", target_node="b", bytes=900_000, latency_ms=0.0, byte_ms=0.0)
    links = (inside, line(stream="q1.b0", source_node="b", target_node="a", bytes=20_000))
    whole = (line(stream="source/s@1/x", source_node="b", target_node="a", bytes=900_000),)
    show_query_usage(QueryUsage(query="q1", strategy="hybrid", links=links, baseline=whole, byte_ms=1e6, baseline_byte_ms=45e6))
    told = capsys.readouterr().out
    totals = [" ".join(row.split()) for row in told.splitlines() if row.startswith("total")]
    assert totals == ["total between nodes 20.0 kB - 1.0", "total between nodes 900.0 kB - 45.0"]
    assert "and 900.0 kB within a node, on 1 link: free" in told
    assert "network usage: 2.2% of sending all rows to the consumer" in told
