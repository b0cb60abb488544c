"""Power loss of whole nodes: unsynced data is lost, and every row still arrives once."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.casting import Casting
from sbon_lab.simulation.checks import CheckFailedError
from sbon_lab.simulation.cluster import CONFIG, SYNCED, SimulatedCluster
from sbon_lab.simulation.engine import engine
from sbon_lab.simulation.engine.engine_process import RunningOperator, SimulatedEngineProcess
from sbon_lab.simulation.faults.plan import AtFailpoint, Fault, at_calls, occurrences
from sbon_lab.simulation.outcome import Outcome
from sbon_lab.simulation.schedule import run_schedule
from tests.nodes.clusters import declare, in_cluster, source_at, state_of, submitted


async def running(cluster: SimulatedCluster, path: Path) -> None:
    await declare(cluster, "a", source_at("b", rows=1_000_000, rate=10.0))
    await submitted(cluster, "a", path, consumer="a", strategy="producer")
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.5)


FILE = Casting()


@functools.cache
def undisturbed() -> Outcome:
    return run_schedule((), seed=1, casting=FILE)


def check(faults: Iterable[Fault]) -> None:
    for fault in faults:
        outcome = run_schedule([fault], seed=1, casting=FILE)
        assert not outcome.failure, "\n".join([*outcome.trace[-60:], str(fault), outcome.failure])
        assert not outcome.unstruck, fault


ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("losses of power at more calls")


@pytest.mark.parametrize(
    "node, every",
    [("c", 3), pytest.param("c", 1, marks=ONLY_IN_TEST_ALL), ("o", 8), pytest.param("o", 4, marks=ONLY_IN_TEST_ALL)],
)
def test_power_lost_at_a_call_to_the_disk(node: str, every: int) -> None:
    """Cut the consumer's power at any call, as rows and positions are files; the operator's at some, for its checkpoint."""
    calls = undisturbed().calls[node]
    assert calls > 30
    check(at_calls({node: calls}, every=every))


@pytest.mark.one_part_per_commit("losses of power after transactions", parts=3)
@pytest.mark.parametrize("node", FILE.stage.nodes)
def test_power_lost_after_a_transaction(node: str) -> None:
    """Cut power at the first calls, when a node has little else, and at some later ones."""
    stored = [
        when
        for when in occurrences(undisturbed().failpoint)
        if when.node == node and when.step in ("store", "outbox-write", "position-write", "publish", "send", "acknowledge")
    ]
    check(Fault(when, "power", node) for when in [*stored[:6], *stored[6::7]])


def test_a_disk_without_syncs_loses_rows() -> None:
    lost = Fault(AtFailpoint("o", "send", 4), "power", "o")
    assert run_schedule([lost], seed=1, casting=msgspec.structs.replace(FILE, fsync=False)).failure


def test_a_power_cut_ends_the_orphan_of_an_earlier_life(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv")
        node = cluster.at("b")
        cluster.fault_injector.inject(Fault(AtFailpoint("b", "plan", 1), "orphan", "b", down_s=1.0))
        await cluster.until(lambda: node.ready)
        (orphan,) = [process for process in node.locks.engine_processes if process.alive and "#1/" in process.name]
        cluster.fault_injector.inject(Fault(AtFailpoint("b", "plan", 1), "power", "b", down_s=1.0))
        assert not orphan.alive
        await cluster.until(lambda: node.ready)

    in_cluster(tmp_path, "ab", test, config=CONFIG, configs={"b": SYNCED})


def test_an_error_in_an_operator_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(host: SimulatedEngineProcess, operator: RunningOperator) -> None:
        raise FileNotFoundError("offsets/3")

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv")
        monkeypatch.setattr(engine, "run_batches", gone)
        cluster.fault_injector.inject(Fault(AtFailpoint("b", "plan", 1), "kill-engine", "b", down_s=1.0))
        with pytest.raises(CheckFailedError, match="offsets/3"):
            await cluster.sleep(60)
        cluster.loop.unhandled.clear()

    in_cluster(tmp_path, "ab", test)
