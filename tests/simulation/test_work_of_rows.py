"""Rows take time in a simulated engine, if an experiment says so, and daemons measure it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.engine.engine_process import EngineTimes
from sbon_lab.simulation.loop import VirtualLoop, run
from tests.nodes.clusters import UNHURRIED, declare, source_at, state_of, submitted

WORK_S, ROWS_S = {"b0": 0.03}, 10.0
TIMES = EngineTimes(between_steps=(0.0001, 0.0002), work_s=lambda operator: WORK_S[operator.rpartition(".")[2]])


@pytest.mark.one_part_per_commit("faults in virtual time", parts=6)
def test_a_daemon_measures_the_work_of_rows(tmp_path: Path) -> None:
    async def main(loop: VirtualLoop, rng: random.Random) -> None:
        cluster = SimulatedCluster(loop, 1, "ab", tmp_path / "nodes", config=UNHURRIED, times=TIMES)
        cluster.start()
        await cluster.together()
        await declare(cluster, "a", source_at("b", rows=1200, rate=ROWS_S))
        await submitted(cluster, "a", tmp_path / "out.csv", sql="SELECT id FROM numbers WHERE id >= 0")
        await cluster.sleep(30.0)
        (operator,) = (await state_of(cluster, "a")).operators
        cluster.at(operator.node).load_per_core = 0.24
        (operator,) = (await state_of(cluster, "a")).operators
        measures = operator.measures
        assert measures is not None
        assert measures.rows_in_s == pytest.approx(ROWS_S, rel=0.2)
        assert measures.row_ms == pytest.approx(30.0, rel=0.25)
        assert measures.busy == pytest.approx(0.3, rel=0.3)
        assert measures.core_ms == pytest.approx(24.0, rel=0.2), "of the load of its machine"

    run(main, seed=1, max_time_s=600.0)
