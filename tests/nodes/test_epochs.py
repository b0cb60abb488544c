"""Impossible epochs are rejected, both from a query's leader and from a node that deploys a part."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.net.peers import Caller
from sbon_node.ownership.acceptors import RecordAcceptors, check_epoch, claim
from sbon_protocol.api.bounded import MAX_EPOCH_LEAP
from sbon_protocol.calls import ClaimComponent, Claimed
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, in_cluster


@pytest.mark.one_part_per_commit("absurd epochs", parts=6)
@pytest.mark.parametrize("absurd", [2**62, 3 + MAX_EPOCH_LEAP + 1, 3, 0])
def test_a_leader_that_answers_an_absurd_epoch_is_asked_again(tmp_path: Path, absurd: int) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        answers = [absurd, absurd, 5]

        async def answer(call: ClaimComponent, caller: Caller) -> Claimed:
            return Claimed(epoch=answers.pop(0))

        cluster.nodes["b"].daemon.context.server.handle(ClaimComponent, answer)
        context = cluster.nodes["a"].daemon.context
        records = RecordAcceptors(context, cluster.nodes["a"].daemon.ownership.registers)
        acceptor = cluster.nodes["b"].daemon.ownership.acceptors.me
        call = ClaimComponent(query="q", component="q.b0", epoch=3)
        assert await ask(cluster, "a", claim(context, records, (acceptor,), call)) == 5
        assert context.counters.snapshot()["epoch-refused"] == 2

    in_cluster(tmp_path, "ab", test)


@pytest.mark.parametrize("epoch", [-1, 0, MAX_EPOCH_LEAP + 1, 2**62])
def test_no_part_begins_in_an_absurd_epoch(epoch: int) -> None:
    with pytest.raises(SbonError, match="no part begins"):
        check_epoch(epoch, "q.b0")
    check_epoch(1, "q.b0")
