"""Losses of a query with each of its nodes: by its description, and as a cluster describes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.queries.describing.survival import survival_of, with_survival
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.durability import BackupInfo, Durability
from sbon_protocol.api.operators import OperatorStats
from sbon_protocol.api.queries import OperatorInfo, QueryInfo, SinkSpec
from sbon_protocol.api.states.backup_states import BackupState
from sbon_protocol.api.streams import SourceInfo
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted
from tests.nodes.test_lost import lose_data
from tests.nodes.test_moved_operators import move, operators

SOURCE = SourceDeclaration(stream="trades", name="b", node="b", connector="file")
SINK = "d writes its sink (file: with the rows in it)"
MET = OperatorStats(batches=3)
WAITS = "; it would only wait for a node whose disk comes back"


def operator(
    durability: Durability = "local", backup: BackupState | None = None, batch: int | None = 4, **fields: Any
) -> OperatorInfo:
    info = None if backup is None else BackupInfo(state=backup, node="e", batch=batch)
    return OperatorInfo(
        **{"id": "q.b0", "node": "c", "fragment": "", "state": "running", "durability": durability, "backup": info} | fields
    )


def query(*operators: OperatorInfo, sources: tuple[SourceInfo, ...] = (), **fields: Any) -> QueryInfo:
    whole = {
        "id": "q",
        "sql": "",
        "state": "running",
        "acceptors": ("a", "b", "c"),
        "consumer": "d",
        "sink": SinkSpec(kind="file"),
    }
    return QueryInfo(**whole | {"operators": operators, "sources": sources} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "shown, lost",
    [
        (operator(), "c hosts q.b0 (local), "),
        (operator("replicated"), "c hosts q.b0 (its backup is not known), "),
        (operator("replicated", "missing"), "c hosts q.b0 (its backup is missing), "),
        (operator("replicated", "copying"), "c hosts q.b0 (its backup is copying), "),
        (operator("replicated", "behind"), ""),
        (
            operator("replicated", "behind", None, stats=OperatorStats(batches=3)),
            "c hosts q.b0 (its backup is not known to have its state), ",
        ),
        (operator("replicated", "current"), ""),
    ],
)
def test_an_operator_survives_at_a_backup_that_can_take_over(shown: OperatorInfo, lost: str) -> None:
    survival = survival_of(query(shown))
    assert survival.text == f"would lose: {lost}{SINK}{WAITS}"
    assert [(loss.node, loss.part) for loss in survival.losses] == [*([("c", "operator")] if lost else []), ("d", "sink")]
    assert not survival.any_node


def test_a_backup_that_is_missed_now_counts_for_nothing() -> None:
    def absence(node: str) -> str:
        return "is dead since noon" if node == "e" else ""

    shown = query(operator("replicated", "current"), sink=SinkSpec(kind="http", failover=True))
    assert survival_of(shown).any_node
    survival = survival_of(shown, absence)
    assert survival.text == f"would lose: c hosts q.b0 (e, its backup, is dead since noon){WAITS}"
    source = msgspec.structs.replace(SOURCE, durability="replicated")
    backup = BackupInfo(state="current", node="e", batch=7)
    shown = query(sources=(SourceInfo(source=source, state="running", backup=backup),), sink=SinkSpec(kind="http", failover=True))
    assert survival_of(shown).any_node
    assert survival_of(shown, absence).text == f"would lose: b is its file source trades{WAITS}"


@pytest.mark.parametrize(
    "fields, recovers",
    [
        ({"stats": OperatorStats()}, True),  # nobody has seen anything of it
        ({"stats": MET}, False),  # its host has restarted
        ({"state": "starting"}, False),  # its counts are not known yet
        ({"state": "unreachable"}, True),  # named by its register alone
    ],
)
def test_a_backup_without_a_batch_may_still_have_all_that_was_shown(fields: dict[str, Any], *, recovers: bool) -> None:
    shown = query(operator("replicated", "current", None, **fields), sink=SinkSpec(kind="http", failover=True))
    assert survival_of(shown).any_node == recovers


@pytest.mark.parametrize("state", ["running", "paused: there is no file", "ended"])
def test_a_source_stays_at_its_node(state: str) -> None:
    survival = survival_of(query(sources=(SourceInfo(source=SOURCE, state=state),)))
    assert survival.text == f"would lose: b is its file source trades, {SINK}{WAITS}"


@pytest.mark.parametrize(
    "kind, why",
    [
        ("follow", "its follower keeps the rows that it has taken"),
        ("file", "with the rows in it"),
        ("postgres", "delivered rows stay at their receiver"),
        ("installed", "a sink stays at its node"),
    ],
)
def test_a_sink_says_what_becomes_of_delivered_rows(kind: str, why: str) -> None:
    survival = survival_of(query(sink=SinkSpec(kind=kind)))
    assert survival.text == f"would lose: d writes its sink ({kind}: {why}){WAITS}"
    assert survival_of(query(sink=SinkSpec(kind=kind, failover=True))).any_node


@pytest.mark.parametrize(
    "acceptors, text",
    [
        (("a",), ", a keeps its record (one of 1)"),
        (("a", "b"), ", a keeps its record (one of 2), b keeps its record (one of 2)"),
        (("a", "b", "c"), ""),
    ],
)
def test_a_record_survives_with_three_copies(acceptors: tuple[str, ...], text: str) -> None:
    assert survival_of(query(acceptors=acceptors)).text == f"would lose: {SINK}{text}{WAITS}"


def test_a_lost_part_is_told_apart_from_those_that_may_be_lost() -> None:
    named = msgspec.structs.replace(SOURCE, name="east")
    lost = (SourceInfo(source=named, state="lost"),)
    survival = survival_of(query(operator(state="lost"), sources=lost))
    assert survival.text == f"has lost: c hosts q.b0 (local), b is its file source trades/east; would lose: {SINK}{WAITS}"
    assert survival_of(query(sink_lost=True)).text == f"has lost: {SINK}"


def test_the_sentence_stays_short() -> None:
    survival = survival_of(query(*(operator(id=f"q.b{number}") for number in range(40))))
    assert len(survival.losses) == 41
    assert "q.b5 (local), and 35 more" in survival.text
    assert "q.b6" not in survival.text


@pytest.mark.parametrize("state", ["placing", "finished", "failed", "stopped"])
def test_a_query_that_does_not_run_loses_nothing(state: str) -> None:
    assert with_survival(query(state=state)).survival is None
    assert with_survival(query()).survival is not None


@pytest.mark.one_part_per_commit("durabilities that a cluster describes", parts=2)
@pytest.mark.parametrize("durability", ["local", "replicated"])
def test_a_cluster_describes_durability_epoch_and_losses(tmp_path: Path, durability: Durability) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("b", rows=200, rate=40.0))
        await submitted(cluster, "a", tmp_path / "out.csv", consumer="d", strategy="producer", durability=durability)
        info = await state_of(cluster, "c")
        (shown,) = info.operators
        assert (shown.node, shown.durability, shown.epoch) == ("b", durability, 1)
        assert (shown.backup is None) == (durability == "local")
        assert info.survival is not None
        parts = {(loss.node, loss.part) for loss in info.survival.losses}
        assert parts - {("b", "operator")} == {("b", "source"), ("d", "sink")}
        if durability == "local":
            assert ("b", "operator") in parts
        assert all(one.survival is None for one in await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.all()))
        while (info := await state_of(cluster, "a")).state == "running":
            await cluster.sleep(0.5)
        assert (info.state, info.survival, info.operators[0].backup) == ("finished", None, None)

    in_cluster(tmp_path, "abcde", test)


async def at_the_end(cluster: SimulatedCluster, seconds: float) -> QueryInfo:
    """The query once it is over, or after that time."""
    for _ in range(int(seconds)):
        if (info := await state_of(cluster, "e")).state != "running":
            break
        await cluster.sleep(1.0)
    return info


@pytest.mark.one_part_per_commit("deaths of nodes of a query", parts=20)
@pytest.mark.parametrize("node", list("abcde"))
def test_a_query_loses_with_a_node_what_it_has_said(tmp_path: Path, node: str) -> None:
    """The source is at ``b``, its operator at ``c``, the sink at ``d``."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1000, rate=40.0))
        await submitted(cluster, "a", tmp_path / "out.csv", consumer="d", strategy="producer", sql="SELECT id FROM numbers")
        while not (await state_of(cluster, "e")).rows:
            await cluster.clock.sleep(0.2)
        (operator,) = operators(cluster)
        assert (await move(cluster, operator, "b", "c")).step == "moved"
        before = (await state_of(cluster, "e")).survival
        assert before is not None
        assert {loss.node: loss.part for loss in before.losses} == {"c": "operator", "b": "source", "d": "sink"}
        await lose_data(cluster, node)
        info = await at_the_end(cluster, 90)
        if node not in "bcd":
            assert info.state == "finished"
            assert len(set((tmp_path / "out.csv").read_text().splitlines())) == 1001
            return
        assert info.state != "finished"
        if info.survival is not None:
            assert [loss.node for loss in info.survival.losses if loss.lost] == [node]
            assert info.survival.text.startswith(f"has lost: {node} ")

    in_cluster(tmp_path, "abcde", test)


def test_a_source_whose_rows_are_all_taken_is_a_loss_too(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=40, rate=40.0), source_at("c", rows=1600, rate=40.0))
        await submitted(cluster, "a", tmp_path / "out.csv", consumer="d", strategy="consumer")
        while [one.state for one in (await state_of(cluster, "e")).sources] != ["ended", "running"]:
            await cluster.sleep(1.0)
        await cluster.sleep(5.0)
        survival = (await state_of(cluster, "e")).survival
        assert survival is not None
        assert {loss.node for loss in survival.losses} == {"b", "c", "d"}
        await lose_data(cluster, "b")
        assert (await at_the_end(cluster, 90)).state == "failed"

    in_cluster(tmp_path, "abcde", test)


@pytest.mark.one_part_per_commit("numbers of copies of a record", parts=8)
@pytest.mark.parametrize("names, survives", [("ab", False), ("abc", True)])
def test_a_record_with_one_copy_is_a_loss(tmp_path: Path, names: str, survives: bool) -> None:
    """All parts are at ``a``; ``b`` keeps a copy of the record, and nothing else."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=1200, rate=40.0))
        await submitted(cluster, "b", tmp_path / "out.csv", consumer="a", strategy="producer")
        survival = (await state_of(cluster, "a")).survival
        assert survival is not None
        assert ("b keeps its record (one of 1)" in survival.text) == (not survives)
        await lose_data(cluster, "b")
        await cluster.sleep(60)
        if survives:
            assert (await state_of(cluster, "a")).state == "finished"
            return
        with pytest.raises(SbonError) as refusal:
            await state_of(cluster, "a")
        assert refusal.value.code == "record-lost"

    in_cluster(tmp_path, names, test)


@pytest.mark.one_part_per_commit("deaths of nodes of a query", parts=20)
@pytest.mark.parametrize("node", list("abcde"))
def test_a_replicated_operator_goes_on_elsewhere(tmp_path: Path, node: str) -> None:
    """The source is at ``b``, its replicated operator at ``c`` or ``e``, the sink at ``d``."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1600, rate=40.0))
        replicated = {"strategy": "producer", "durability": "replicated", "sql": "SELECT id FROM numbers"}
        await submitted(cluster, "a", tmp_path / "out.csv", consumer="d", **replicated)
        while not (await state_of(cluster, "e")).rows:
            await cluster.clock.sleep(0.2)
        (shown,) = (await state_of(cluster, "e")).operators
        assert shown.backup is not None
        host = next(one for one in "ce" if one != shown.backup.node)  # No operator moves to the node of its backup.
        assert (await move(cluster, shown.id, "b", host)).step == "moved"
        for _ in range(20):
            survival = (await state_of(cluster, "e")).survival
            assert survival is not None
            if (losses := {loss.node: loss.part for loss in survival.losses}) == {"b": "source", "d": "sink"}:
                break
            await cluster.sleep(1.0)
        else:
            raise AssertionError(survival.text)
        await lose_data(cluster, node)
        info = await at_the_end(cluster, 90)
        assert (info.state == "finished") == (node not in losses), (info.state, info.reason)
        if node not in losses:
            assert len(set((tmp_path / "out.csv").read_text().splitlines())) == 1601

    in_cluster(tmp_path, "abcde", test)
