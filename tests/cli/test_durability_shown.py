"""``sbon query show`` and ``sbon doctor`` say what a query would lose with a node, and how its operators are backed up."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sbon_cli.commands.queries.durability import ended_by_one_failure
from sbon_cli.commands.queries.query import show_query
from sbon_node.operations.examination import CheckResult, Examination
from sbon_protocol.api.durability import BackupInfo, Loss, Survival
from sbon_protocol.api.queries import OperatorInfo, QueryInfo
from tests.api.scripted_node import ScriptedNode
from tests.cli.commands import run

SAFE = Survival(any_node=True, text="would survive the loss of any one node")
EXPOSED = Survival(
    any_node=False,
    losses=(
        Loss(node="c", part="operator", name="q.b0", why="local"),
        Loss(node="d", part="sink", name="file", why="a sink stays at its node"),
        Loss(node="c", part="source", name="trades", why="file"),
        Loss(node="e", part="source", name="quotes", why="file", lost=True),
    ),
    text="would lose: c hosts q.b0 (local)",
)

GONE = Survival(any_node=False, losses=(Loss(node="e", part="source", name="quotes", why="file", lost=True),), text="has lost: e")


def shown(capsys: pytest.CaptureFixture[str], *backups: BackupInfo | None, **fields: Any) -> str:
    operators = tuple(
        OperatorInfo(
            id=f"o{number}",
            node="b",
            fragment="SELECT 1",
            state="running",
            epoch=number,
            durability="local" if backup is None else "replicated",
            backup=backup,
        )
        for number, backup in enumerate(backups)
    )
    show_query(QueryInfo(id="q", sql="SELECT 1", state="running", operators=operators, **fields))
    return capsys.readouterr().out


def test_backups_are_shown_with_state_place_and_age(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(
        capsys,
        None,
        BackupInfo(state="current", node="c", batch=41, age_s=2.34),
        BackupInfo(state="behind", node="c", batch=7, age_s=150.0, reason="no answer from c"),
        BackupInfo(state="missing", reason="no other node has room"),
        BackupInfo(state="copying", node="d", age_s=7200.0),
        BackupInfo(state="current", node="c", batch=3, age_s=1.0, follows=True, recovered="by its follower"),
        BackupInfo(state="current", node="c", batch=4, age_s=1.0, follows=False, follows_not="no room"),
    )
    table = out[out.index("durability") :].splitlines()[1:8]
    assert [" ".join(line.split()) for line in table] == [
        "o0 local - - - -",
        "o1 replicated 1 current at c 41 2.3 s",
        "o2 replicated 2 behind at c: no answer from c 7 2 min",
        "o3 replicated 3 missing: no other node has room - -",
        "o4 replicated 4 copying at d - -",
        "o5 replicated 5 current at c, followed; taken over by its follower 3 1.0 s",
        "o6 replicated 6 current at c, not followed: no room 4 1.0 s",
    ]


@pytest.mark.parametrize("survival", [SAFE, EXPOSED])
def test_a_query_says_what_it_would_lose(capsys: pytest.CaptureFixture[str], survival: Survival) -> None:
    assert f"replicated: {survival.text}\n" in shown(capsys, durability="replicated", survival=survival)


def test_nothing_is_said_of_a_query_that_does_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys)
    assert "local" not in out
    assert "durability" not in out


@pytest.mark.parametrize(
    "survival, found",
    [
        (None, []),
        (SAFE, [("ok", "1, each survives the loss of any one node")]),
        (GONE, []),
        (EXPOSED, [("warning", "the loss of one node with its disk would end: q1 (c, d with its sink)")]),
    ],
)
def test_doctor_warns_of_queries_that_one_failure_would_end(
    node: ScriptedNode, api: str, survival: Survival | None, found: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ScriptedNode.query

    async def query(self: ScriptedNode, query_id: str) -> QueryInfo:
        return msgspec.structs.replace(await honest(self, query_id), survival=survival)

    monkeypatch.setattr(ScriptedNode, "query", query)
    node.operations.examination = Examination(node="a", findings=(CheckResult(check="java", verdict="ok", message="17"),))
    result = run(api, "doctor", "--json")
    assert result.exit_code == 0  # a warning is no failure
    findings = [one for one in json.loads(result.stdout)["findings"] if one["check"] == "durability"]
    assert [(one["verdict"], one["message"]) for one in findings] == found
    assert [("--durability replicated" in one["remedy"]) for one in findings] == [one["verdict"] == "warning" for one in findings]


@pytest.mark.parametrize("durability, advised", [("local", True), ("replicated", False), ("hot", False)])
def test_doctor_advises_durability_for_local_queries_only(
    node: ScriptedNode, api: str, durability: str, advised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ScriptedNode.query

    async def query(self: ScriptedNode, query_id: str) -> QueryInfo:
        fields: Any = {"survival": EXPOSED, "durability": durability}
        return msgspec.structs.replace(await honest(self, query_id), **fields)

    monkeypatch.setattr(ScriptedNode, "query", query)
    node.operations.examination = Examination(node="a", findings=(CheckResult(check="java", verdict="ok", message="17"),))
    findings = json.loads(run(api, "doctor", "--json").stdout)["findings"]
    (found,) = [one for one in findings if one["check"] == "durability"]
    assert ("submit with --durability replicated" in found["remedy"]) == advised
    assert "attach live sources with --durability replicated" in found["remedy"]
    assert "--sink-failover" in found["remedy"]


def test_doctor_advises_nothing_against_a_loss_that_has_happened(
    node: ScriptedNode, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ScriptedNode.query
    survival = msgspec.structs.replace(GONE, losses=(*GONE.losses, Loss(node="c", part="operator", name="q.b0", why="local")))

    async def query(self: ScriptedNode, query_id: str) -> QueryInfo:
        return msgspec.structs.replace(await honest(self, query_id), survival=survival)

    monkeypatch.setattr(ScriptedNode, "query", query)
    node.operations.examination = Examination(node="a", findings=(CheckResult(check="java", verdict="ok", message="17"),))
    findings = json.loads(run(api, "doctor", "--json").stdout)["findings"]
    (found,) = [one for one in findings if one["check"] == "durability"]
    assert "(c)" in found["message"]
    assert "submit with --durability replicated" in found["remedy"]
    assert "attach live sources" not in found["remedy"]


def test_the_warning_names_few_queries() -> None:
    queries: Any = [QueryInfo(id=f"q{number}", sql="", state="running", survival=EXPOSED) for number in range(9)]
    assert ended_by_one_failure(queries) == ", ".join(f"q{number} (c, d with its sink)" for number in range(5)) + ", and 4 more"


def operator(number: int, state: str = "running", **backup: Any) -> OperatorInfo:
    info = BackupInfo(state="current", node="c", **backup)
    return OperatorInfo(id=f"q.o{number}", node="b", fragment="", state=state, durability="hot", backup=info)  # type: ignore[arg-type]


def test_doctor_names_hot_operators_without_a_follower(node: ScriptedNode, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ScriptedNode.query
    operators = (
        operator(0, follows=True),
        operator(1, follows=False, follows_not="no room"),
        operator(2, follows=False),
        operator(3, state="starting", follows=False),
        operator(4, follows=None),
    )

    async def query(self: ScriptedNode, query_id: str) -> QueryInfo:
        return msgspec.structs.replace(await honest(self, query_id), survival=SAFE, operators=operators)

    monkeypatch.setattr(ScriptedNode, "query", query)
    node.operations.examination = Examination(node="a", findings=(CheckResult(check="java", verdict="ok", message="17"),))
    findings = json.loads(run(api, "doctor", "--json").stdout)["findings"]
    (found,) = [one for one in findings if one["check"] == "hot"]
    assert (found["verdict"], found["message"]) == ("warning", "no follower follows: q.o1 (no room), q.o2")
