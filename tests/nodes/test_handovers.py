"""The handover of a committed move: the stream goes to the target, and the old host forgets the operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.hosting.moving.departures import StoredDeparture
from sbon_node.net.peers import Caller
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import ActivateOperator
from tests.nodes.clusters import in_cluster, state_of
from tests.nodes.test_moved_operators import FILTER, ROWS, check_windows, finished, move, operators, running
from tests.nodes.test_moves_and_crashes import begun, committed, hold_handover, moving_at


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_committed_move_that_is_resumed_shows_its_step(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        hold_handover(cluster, "c")
        operator = await committed(cluster, tmp_path)
        for node in "bc":
            cluster.crash(cluster.at(node))
        await cluster.clock.sleep(1)
        cluster.boot(cluster.at("b"))
        while not (cluster.at("b").ready and begun(cluster, "b")):
            await cluster.clock.sleep(0.1)
        shown = cluster.at("b").daemon.hosting.moves.departures.under_way(operator)
        assert shown is not None
        assert (shown.target, shown.step) == ("c", "switching")
        cluster.boot(cluster.at("c"))
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_the_last_piece_of_the_handover_may_take_as_long_as_settling(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await moving_at(cluster, tmp_path, "switching")
        arrivals, asked = cluster.at("c").daemon.hosting.moves.arrivals, list[float]()
        slow_s = CONFIG.control.call_timeout_s + 2

        async def slowly(call: ActivateOperator, caller: Caller) -> None:
            asked.append(cluster.clock.now())
            await cluster.clock.sleep(slow_s)
            await arrivals._activate(call, caller)

        assert slow_s < CONFIG.engine.settle_s
        cluster.at("c").daemon.context.server.handle(ActivateOperator, slowly)
        state = await move(cluster, operator, "b", "c")
        assert (state.step, len(asked)) == ("moved", 1)
        assert cluster.clock.now() > asked[0] + slow_s
        await finished(cluster)
        check_windows(tmp_path / "out.csv")

    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_host_whose_disk_refuses_forgets_a_moved_operator_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await committed(cluster, tmp_path)
        outbox, refused = cluster.at("b").daemon.outbox, list[float]()
        drop = outbox.drop_stream

        def refuse(stream: str, **how: bool) -> None:
            if len(refused) < CONFIG.control.resume_tries + 1:
                refused.append(cluster.clock.now())
                raise SbonError("disk-full", "no space for more", where=stream)
            drop(stream, **how)

        monkeypatch.setattr(outbox, "drop_stream", refuse)
        assert (await move(cluster, operator, "b", "c")).step == "moved"
        await finished(cluster)
        check_windows(tmp_path / "out.csv")
        await cluster.clock.sleep(CONFIG.control.retry_max_s * 5)
        assert len(refused) == CONFIG.control.resume_tries + 1
        daemon = cluster.at("b").daemon
        assert (operator in daemon.hosting.operators.hosted(), operator in daemon.outbox.streams()) == (False, False)
        assert daemon.context.store.all("departure", StoredDeparture) == {}

    in_cluster(tmp_path, "abcd", test)


def test_rows_that_are_sent_again_to_a_moved_operator_count_once(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", FILTER)
        (operator,) = operators(cluster)
        assert (await move(cluster, operator, "b", "c")).step == "moved"
        cluster.crash(cluster.at("c"))
        await cluster.clock.sleep(1)
        cluster.boot(cluster.at("c"))
        await cluster.clock.sleep(5)
        progress = (await state_of(cluster, "a")).progress
        assert progress is not None
        source = next(iter(cluster.at("b").daemon.outbox.streams()))
        assert 0 < progress.rows_in <= cluster.at("b").daemon.outbox.link_counts(source).rows
        while (await state_of(cluster, "a")).state != "finished":
            await cluster.clock.sleep(1)
        links = cluster.at("b").daemon.outbox.link_counts(source).links.values()
        assert [link.rows for link in links] in ([ROWS], [])

    in_cluster(tmp_path, "abcd", test)
