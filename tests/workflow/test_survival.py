"""What a query would lose with each of its nodes: by its description, and as a cluster describes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_node.model.catalogue import SourceDeclaration
from sbon_node.model.durability import BackupInfo, Durability
from sbon_node.model.queries import LinkInfo, OperatorInfo, QueryInfo, SinkSpec
from sbon_node.model.states.backup_states import BackupState
from sbon_node.model.streams import SourceInfo
from sbon_node.queries.survival import survival_of, with_survival
from sbon_node.simulation.cluster import SimulatedCluster
from tests.workflow.clusters import ask, declare, in_cluster, source_at, state_of, submitted

SOURCE = SourceDeclaration(stream="trades", name="b", node="b", connector="file")
SINK = "d writes its sink (file)"
WAITS = "; it would only wait for a node whose disk comes back"


def operator(durability: Durability = "local", backup: BackupState | None = None, **fields: Any) -> OperatorInfo:
    info = None if backup is None else BackupInfo(state=backup, node="e")
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


def link(stream: str, frames_behind: int) -> LinkInfo:
    return LinkInfo(
        stream=stream, source_node="b", target="x", target_node="c", rows=1, bytes=1, latency_ms=None, frames_behind=frames_behind
    )


@pytest.mark.parametrize(
    "shown, lost",
    [
        (operator(), "c hosts q.b0 (local), "),
        (operator("replicated"), "c hosts q.b0 (its backup is not known), "),
        (operator("replicated", "missing"), "c hosts q.b0 (its backup is missing), "),
        (operator("replicated", "copying"), "c hosts q.b0 (its backup is copying), "),
        (operator("replicated", "behind"), ""),
        (operator("replicated", "current"), ""),
    ],
)
def test_an_operator_survives_at_a_backup_that_can_take_over(shown: OperatorInfo, lost: str) -> None:
    survival = survival_of(query(shown))
    assert survival.text == f"would lose: {lost}{SINK}{WAITS}"
    assert [(loss.node, loss.part) for loss in survival.losses] == [*([("c", "operator")] if lost else []), ("d", "sink")]
    assert not survival.any_node


@pytest.mark.parametrize(
    "source, behind, lost",
    [
        ("running", None, True),
        ("paused: there is no file", 0, True),
        ("ended", 3, True),
        ("ended", None, True),
        ("ended", 0, False),
    ],
)
def test_a_source_is_no_loss_once_all_its_rows_are_taken(source: str, behind: int | None, lost: bool) -> None:
    links = () if behind is None else (link(SOURCE.id, behind), link("another", 9))
    survival = survival_of(query(sources=(SourceInfo(source=SOURCE, state=source),), links=links))
    assert survival.text == f"would lose: {'b is its file source trades, ' if lost else ''}{SINK}{WAITS}"


@pytest.mark.parametrize("ended, behind, lost", [(True, 0, False), (True, 1, True), (False, 0, True)])
def test_an_operator_is_no_loss_once_all_its_rows_are_taken(ended: bool, behind: int, lost: bool) -> None:
    survival = survival_of(query(operator(ended=ended), links=(link("q.b0", behind),)))
    assert ("q.b0" in survival.text) == lost


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
        assert all(one.survival is None for one in await ask(cluster, "a", cluster.at("a").daemon.queries()))
        while (info := await state_of(cluster, "a")).state == "running":
            await cluster.sleep(0.5)
        assert (info.state, info.survival, info.operators[0].backup) == ("finished", None, None)

    in_cluster(tmp_path, "abcde", test)
