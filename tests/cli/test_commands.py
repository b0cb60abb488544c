"""Commands against a node on a real port: requests, output and exit codes."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sbon_cli.client import Client
from sbon_cli.main import sbon
from sbon_cli.options.types import milliseconds_of
from sbon_cli.verbs import verbs
from sbon_node.operations.examination import Examination
from sbon_node.queries.describing.lookup import UNANSWERED_HEADER, Unanswered
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.errors import SbonError
from tests.cli.commands import lines, on_a_terminal, run


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
    only = run(api, "query", "list", "--json", "--state", "unreachable", "--state", "lost")
    assert (only.exit_code, [found["id"] for found in lines(only.stdout)], only.stderr.splitlines()) == (0, ["st1"], told)
    assert run(api, "query", "list", "--state", "ill").exit_code == 2
    on_a_terminal(monkeypatch)
    result = run(api, "query", "list")
    assert (result.exit_code, result.stderr.splitlines()) == (0, told)
    assert {"st1", "unreachable:", *reason.split()} <= set(result.stdout.split())


@pytest.mark.parametrize(
    "command", [("query", "list"), ("queries",), ("sql", "-c", "SHOW QUERIES"), ("stream", "show", "flights", "--upstream")]
)
def test_a_list_that_no_node_answers_is_that_of_an_unreachable_node(
    api: str, node: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    async def listed() -> None:
        raise SbonError("nodes-unreachable", "no node answers, not even the one asked: a (alive), b (alive)")

    monkeypatch.setattr(node, "listed", listed)
    result = run(api, *command)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "not even the one asked: a (alive), b (alive)" in result.stderr


def test_a_lineage_names_nodes_that_may_hold_more_queries(api: str, node: Any) -> None:
    node.unanswered = [Unanswered("d", "alive")]
    lineage = run(api, "stream", "show", "flights", "--downstream")
    assert lineage.stderr.splitlines() == ["no answer from d (alive): it may hold queries that are not listed"]


LEAVES = "one that is to go leaves once it runs: sbon leave"


@pytest.mark.parametrize(
    "states, named, remedy",
    [
        ({"d": "alive"}, "d (alive)", "ask again: sbon doctor"),
        ({"d": "dead"}, "d (dead)", f"start again: d; {LEAVES}"),
        ({"d": "away", "e": "suspect"}, "d (away), e (suspect)", f"start again: d; {LEAVES}"),
        (
            dict.fromkeys("defghij", "dead"),
            "d (dead), e (dead), f (dead), g (dead), h (dead), and 2 more",
            f"start again: d, e, f, g, h, and 2 more; {LEAVES}",
        ),
    ],
    ids=["alive", "dead", "both", "many"],
)
def test_the_doctor_advises_by_the_state_of_nodes_that_may_hold_more_queries(
    api: str, node: Any, states: dict[str, str], named: str, remedy: str
) -> None:
    node.unanswered = [Unanswered(name, state) for name, state in states.items()]
    node.operations.examination = Examination(node="a")
    findings = json.loads(run(api, "doctor", "--json").stdout)["findings"]
    told = [(one["check"], one["message"], one["remedy"]) for one in findings if one["verdict"] == "warning"]
    assert told == [("queries", f"those of {named} are not known: no answer from there", remedy)]


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
    assert result.stderr.startswith(f"error: api: {api!r} is not the URL of a node's API")


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
    for verb in verbs():
        assert verb in text
        assert CliRunner().invoke(sbon, [verb, "--help"]).exit_code == 0


def test_an_unreadable_file_is_reported_in_plain_words(api: str, tmp_path: Path) -> None:
    (tmp_path / "latin.sql").write_bytes(b"SELECT '\xe4'")
    for file, reason in (("none.sql", "No such file or directory"), ("latin.sql", "it is not UTF-8")):
        result = run(api, "submit", f"@{tmp_path / file}")
        assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, f"Error: {tmp_path / file} cannot be read: {reason}")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("explain", "@"), "Error: no file is named after @"),
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


def test_durations() -> None:
    assert [milliseconds_of(t, "--delay") for t in ("0s", "500ms", "1.5s", "2 min", "1h")] == [0, 500, 1500, 120_000, 3_600_000]
    assert [milliseconds_of(t, "--delay") for t in ("5m", "2d")] == [300_000, 172_800_000]
    for text in ("5", "-1h", "1 fortnight", "", "1e3s", "h"):
        with pytest.raises(click.UsageError, match=r"--delay: .* is not a duration: write 500ms"):
            milliseconds_of(text, "--delay")


def test_stopping_joining_and_leaving(api: str, node: Any) -> None:
    assert json.loads(run(api, "query", "stop", "q1", "--json").stdout)["state"] == "stopped"
    assert run(api, "stream", "drop", "flights").exit_code == 0
    assert "2 members" in run(api, "join", "b:7400").output
    assert run(api, "join", "dead:1").exit_code == 1
    assert run(api, "leave", "--yes").exit_code == 0
    assert run(api, "leave", "--yes", "--force").exit_code == 0
    assert node.stopped == ["q1", "flights", "node", "node, by force"]
