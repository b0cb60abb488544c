"""Operators of a query that share a far node move together, where none of them would save anything by itself."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from tests.adaptation.test_optimizer import SMALL, adapting
from tests.nodes.clusters import declare, in_cluster, owner_of, source_at, state_of, submitted
from tests.nodes.test_moved_operators import check_windows, finished, move, operators

CHAIN = (
    "SELECT count(*) AS n, sum(id) AS ids, sum(v) AS v FROM numbers WHERE id % 10 <> 99 GROUP BY window(ts, '200 milliseconds')"
)
"""All rows and all columns pass the filter: the link to the count is as heavy as that from the source."""
ROWS = 2400


@pytest.mark.one_part_per_commit("replacements in virtual time", parts=6)
def test_two_operators_of_a_chain_move_together_from_a_far_node(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=ROWS, rate=40.0))
        path = tmp_path / "out.csv"
        await submitted(cluster, "a", path, sql=CHAIN, strategy="consumer", adapt="local", decompose="never")
        while not (await state_of(cluster, "a")).rows:
            await cluster.clock.sleep(0.2)
        filters, counts = operators(cluster)
        for operator in (filters, counts):
            await move(cluster, operator, "a", "c", attempt=operator[-2:])
        assert {operator.node for operator in (await state_of(cluster, "a")).operators} == {"c"}
        await cluster.clock.sleep(35)
        info = await state_of(cluster, "a")
        for operator in info.operators:
            assert (operator.node, [past.node for past in operator.past_moves]) == ("b", ["a", "c"])
            assert "together with" in operator.past_moves[-1].reason
            assert await owner_of(cluster, "a", operator.id) == ("b", 3)
        await finished(cluster)
        check_windows(path, ROWS)

    in_cluster(tmp_path, "abc", test, configs=adapting("abc", msgspec.structs.replace(SMALL, least_measured_s=25.0)))
