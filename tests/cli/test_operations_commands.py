"""``sbon doctor``, ``debug`` and ``drain``: their output, files and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest

from sbon_node.base.logging.levels import LogLevels, set_levels
from sbon_node.base.redaction import REDACTED
from sbon_node.operations.examination import CheckResult, Examination
from sbon_protocol.api.queries import OperatorInfo, QueryInfo
from sbon_protocol.errors import SbonError
from tests.addresses import own_host
from tests.api.scripted_node import ScriptedNode
from tests.cli.commands import on_a_terminal, run

FINE = CheckResult(check="java", verdict="ok", message="version 17")
SLOW = CheckResult(check="fsync", verdict="warning", message="90 ms", remedy="a faster disk")


def waits(state: str) -> OperatorInfo:
    return OperatorInfo(id="q1.b0", node="b", fragment="SELECT 1", state=state, stats=None)


BROKEN = CheckResult(check="ports b", verdict="failed", message="UDP from it: lost", remedy="open port 7400")


@pytest.mark.parametrize("findings, code", [((FINE,), 0), ((FINE, SLOW), 0), ((FINE, SLOW, BROKEN), 1)])
def test_doctor_exits_by_the_worst_finding(
    node: ScriptedNode, api: str, findings: tuple[CheckResult, ...], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.operations.examination = Examination(node="a", findings=findings)
    found = run(api, "doctor", "--json")
    assert (found.exit_code, [one["check"] for one in json.loads(found.stdout)["findings"]]) == (
        code,
        [*(f.check for f in findings), "java", "sources", "queries"],
    )
    only = run(api, "doctor", "--only", "--json")
    assert [one["check"] for one in json.loads(only.stdout)["findings"]] == [*(f.check for f in findings), "sources", "queries"]
    on_a_terminal(monkeypatch)
    shown = run(api, "doctor")
    assert shown.exit_code == code
    assert all(finding.message in shown.stdout and finding.remedy in shown.stdout for finding in findings)
    assert (shown.stdout.count("version 17"), "1 checks" in shown.stdout) == (1, True), "others' checks that are well are counted"


@pytest.mark.parametrize(
    "state, trouble, verdict, remedy",
    [
        ("unreachable", "", "warning", "start the nodes that are away; see"),
        (
            "paused: options.path: there is no file x",
            "there is no file x",
            "warning",
            "remove the cause that paused sources report",
        ),
        ("failed: the file is another", "the file is another", "warning", "stop the queries that read failed sources, detach"),
        ("paused: its subscribers have not received what there is", "", "ok", ""),
        ("idle", "", "ok", ""),
        ("lost", "a does not know it", "warning", "stop the queries that read lost sources, detach these"),
    ],
)
def test_doctor_tells_which_sources_are_lost(
    node: ScriptedNode, api: str, state: str, trouble: str, verdict: str, remedy: str
) -> None:
    node.operations.examination = Examination(node="a", findings=(FINE,))
    node.source_state, node.source_trouble = state, trouble
    found = run(api, "doctor", "--json")
    *_, sources, _ = json.loads(found.stdout)["findings"]
    assert (found.exit_code, sources["verdict"]) == (0, verdict)
    assert sources["remedy"].startswith(remedy)
    if verdict == "warning":
        assert sources["message"] == f"flights/jfk at a: {state}"


def test_doctor_tells_what_was_examined_though_streams_are_not_known(node: ScriptedNode, api: str) -> None:
    node.operations.examination = Examination(node="a", findings=(BROKEN,))
    for code in ("node-unreachable", "stopping"):
        node.refuse_streams = SbonError(code, "the node stops", hint="ask another")
        found = run(api, "doctor", "--only", "--json")
        told = json.loads(found.stdout)
        assert (found.exit_code, told["node"]) == (1, "a")
        assert [(one["check"], one["verdict"], one["message"]) for one in told["findings"]] == [
            (BROKEN.check, "failed", BROKEN.message),
            ("sources", "warning", "not known: the node stops"),
            ("queries", "ok", "1, none has lost a component or waits"),
        ]


@pytest.mark.parametrize(
    "fields, verdict",
    [
        ({"sink_lost": True, "reason": "sink at b: b does not know it"}, "failed"),
        ({"state": "lost", "reason": "a has lost its record"}, "failed"),
        ({"state": "unreachable", "reason": "no answer from a"}, "warning"),
        ({"operators": (waits("lost"),), "reason": "q1.b0 at b: b does not know it"}, "failed"),
        ({"operators": (waits("stopped"),), "reason": "q1.b0 at b: no space for the checkpoint"}, "warning"),
    ],
)
def test_doctor_tells_what_queries_have_lost_and_what_they_wait_for(
    node: ScriptedNode, api: str, fields: dict[str, object], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ScriptedNode.query

    async def query(self: ScriptedNode, query_id: str) -> QueryInfo:
        return msgspec.structs.replace(await honest(self, query_id), **fields)

    monkeypatch.setattr(ScriptedNode, "query", query)
    node.operations.examination = Examination(node="a", findings=(FINE,))
    found = run(api, "doctor", "--json")
    *_, told = json.loads(found.stdout)["findings"]
    assert (told["check"], told["verdict"], told["message"]) == ("query q1", verdict, fields["reason"])
    assert ("submit it again" in told["remedy"]) == (verdict == "failed")


def test_doctor_has_one_line_for_all_queries_that_wait_for_the_operators_of_a_node(node: ScriptedNode, api: str) -> None:
    reason = "q1.b0 at b: the engine process ended with -9"
    waiting = (waits("starting"), waits("running"))
    node.lost = [
        QueryInfo(id=f"w{number}", sql="", state="unreachable", reason=reason, operators=waiting) for number in range(6)
    ] + [QueryInfo(id="other", sql="", state="unreachable", reason="no answer from c")]
    node.operations.examination = Examination(node="a", findings=(FINE,))
    told = json.loads(run(api, "doctor", "--only", "--json").stdout)["findings"]
    assert [(one["check"], one["message"], one["remedy"]) for one in told[1:] if one["verdict"] == "warning"] == [
        (
            "queries",
            f"6 wait for operators at b: 7 of 13 run there; w0: {reason}",
            "see: sbon query show w0 or w1 or w2 or w3 or w4",
        ),
        ("query other", "no answer from c", "see: sbon query show other"),
    ]


def test_doctor_examines_this_machine_where_no_node_runs(tmp_path: Path) -> None:
    nowhere = f"http://{own_host(9)}:1"
    flags = ("--name", "x", "--data-dir", str(tmp_path / "data"), "--bind", own_host(), "--api-bind", own_host())
    found = run(nowhere, "doctor", "--json", *flags)
    told = {one["check"]: one["verdict"] for one in json.loads(found.stdout)["findings"]}
    assert (found.exit_code, told["node"], told["java"], told["port-udp"], told["data-dir"]) == (0, "warning", "ok", "ok", "ok")
    elsewhere = run(nowhere, "doctor", "--name", "x", "--data-dir", str(tmp_path), "--bind", "192.0.2.1")
    assert elsewhere.exit_code == 1
    assert run(nowhere, "doctor", "--set", "streams.fsync=perhaps").exit_code == 2


def test_log_levels_are_shown_and_set(api: str) -> None:
    try:
        steps = [
            (("log-level", "warning"), {"level": "warning", "loggers": {}}),
            (("log-level", "debug", "--logger", "sbon_node.net"), {"level": "warning", "loggers": {"sbon_node.net": "debug"}}),
            (
                ("log-level", "error", "--logger", "asyncio"),
                {"level": "warning", "loggers": {"sbon_node.net": "debug", "asyncio": "error"}},
            ),
            (("log-level",), {"level": "warning", "loggers": {"sbon_node.net": "debug", "asyncio": "error"}}),
            (("log-level", "info", "--reset"), {"level": "info", "loggers": {}}),
        ]
        for arguments, expected in steps:
            found = run(api, "debug", *arguments, "--json")
            printed = found.stdout.splitlines()[-1]  # after what the node logs, in this very process
            assert (found.exit_code, json.loads(printed)) == (0, expected)
        assert run(api, "debug", "log-level", "debug", "--logger", "sbon_node.nett").exit_code == 1
        assert run(api, "debug", "log-level", "--logger", "sbon_node.net").exit_code == 2
        assert run(api, "debug", "log-level", "loud").exit_code == 2
    finally:
        set_levels(LogLevels(level="info"))


def test_a_dump_holds_what_the_node_tells_and_hides_secrets(
    node: ScriptedNode, api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    node.operations.config = {"node": {"name": "a"}, "sinks": {"password": "hunter2", "url": "http://u:hunter2@h/"}}
    found = run(api, "debug", "dump")
    assert found.exit_code == 0, found.output
    path = tmp_path / found.stdout.strip()
    assert path.name.startswith("sbon-a-")
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        files = {}
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            files[member.name.partition("/")[2]] = content.read().decode()
    assert set(files) >= {"status.json", "members.json", "config.json", "metrics.txt", "tasks.txt", "log.txt", "versions.json"}
    assert "missing.txt" not in files
    assert "hunter2" not in "".join(files.values())
    assert json.loads(files["config.json"])["sinks"]["password"] == REDACTED
    assert "sbon_members" in files["metrics.txt"]


def test_a_dump_that_cannot_be_written_or_had_says_so(api: str, tmp_path: Path) -> None:
    assert run(api, "debug", "dump", "--out", str(tmp_path / "no" / "x.tar.gz")).exit_code == 1
    assert run(f"http://{own_host(9)}:1", "debug", "dump", "--out", str(tmp_path / "x.tar.gz")).exit_code == 3
    without_room = ("sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "sbon_cli.main", "--node", api)
    for command in (("debug", "dump"), ("map",)):
        path = tmp_path / ("x.tar.gz" if command == ("debug", "dump") else "x.svg")
        done = subprocess.run([*without_room, *command, "--out", str(path)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.splitlines()[0]) == (1, f"error: {path}: cannot be written: File too large")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("words", [("drain",), ("node", "drain")])
def test_draining_asks_first_and_shows_what_moves_and_what_stays(node: ScriptedNode, api: str, words: tuple[str, ...]) -> None:
    assert run(api, *words, stdin="n\n").exit_code == 1
    assert not node.operations.drained
    planned = run(api, *words, "--dry-run")
    assert (planned.exit_code, node.operations.drained) == (0, False)
    assert (planned.stderr, planned.stdout) == ("q.b0 to paris: planned\n", "a would leave\n")
    node.operations.stays = ("hosts q.sink of query q", "has the source s")
    stayed = run(api, *words, "--yes")
    assert stayed.exit_code == 1
    assert "stays" not in stayed.stderr
    assert stayed.stdout.splitlines()[:2] == ["a hosts q.sink of query q", "a has the source s"]
    node.operations.stays = ()
    done = run(api, *words, "a", "--yes")
    assert (done.exit_code, node.operations.drained) == (0, True)
    assert done.stderr.splitlines() == ["q.b0: waiting", "q.b0 to paris: copying 1.0 kB", "q.b0 to paris: moved"]
    assert done.stdout == "a has left; 1 operator moved away\n"
    events = run(api, *words, "--yes", "--json").stdout.splitlines()
    assert [json.loads(event)["event"] for event in events] == ["progress"] * 4 + ["drained"]


def test_draining_another_node_asks_that_node(api: str) -> None:
    unknown = run(api, "drain", "nowhere")
    assert (unknown.exit_code, unknown.stdout) == (1, ""), "it is not asked whether to drain a node that is not there"
    assert unknown.stderr.splitlines() == ["error: node: there is no node 'nowhere'", "  hint: see: sbon members"]
    elsewhere = run(api, "drain", "b", "--yes")  # Its API is at another address, where nobody listens.
    assert (elsewhere.exit_code, "b, which is alive, does not answer: no node answers at http://" in elsewhere.stderr) == (
        3,
        True,
    )
    assert "start it and drain it again" in elsewhere.stderr


def test_settings_before_another_command_are_refused(api: str) -> None:
    found = run(api, "node", "--name", "x", "drain", "--yes")
    assert found.exit_code == 2


def test_resources_are_a_table_for_people_and_an_object_for_programs(
    node: ScriptedNode, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.loads(run(api, "debug", "resources", "--json").stdout)
    assert [(process["kind"], process["proportional_bytes"]) for process in answer["processes"]] == [
        ("jvm", 500 * 2**20),
        ("daemon", 90 * 2**20),
    ]
    assert answer["disk"][0] == {"kind": "stream", "name": "flights/jfk", "bytes": 3 * 2**20}
    on_a_terminal(monkeypatch)
    shown = run(api, "debug", "resources")
    assert shown.exit_code == 0
    lines = [line.replace("│", " ").split() for line in shown.stdout.splitlines()]
    assert ["jvm", "2", "500.0", "600.0", "80"] in lines
    assert [line for line in lines if line[:1] == ["all"]] == [["all", "-", "590.0", "-", "100"], ["all", "5.0"]]
    assert ["stream", "flights/jfk", "3.0"] in lines
