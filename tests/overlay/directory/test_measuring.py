"""Pairs measured on request, by whole nodes on the simulated network: what is measured, who is asked, what is refused."""

from __future__ import annotations

import asyncio
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.overlay.directory.measuring import Measurement
from sbon_node.overlay.membership.service import Membership
from sbon_protocol.errors import SbonError
from sbon_protocol.frames import encode_frame
from sbon_protocol.measuring import MeasuredRtt, MeasuredRtts, MeasureRtt
from sbon_protocol.messages import Frame
from tests.nodes.clusters import ask
from tests.overlay.directory.measurements import RTT_MS, count_asked, measured, measuring, refused


def test_measurements_are_the_networks_at_any_node(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await cluster.sleep(20)
        for at in "abcd":
            found = await measured(cluster, at, *(a + b for a, b in RTT_MS))
            for pair, outcome in found.items():
                assert isinstance(outcome, Measurement), outcome
                assert RTT_MS[pair] <= outcome.rtt_ms < RTT_MS[pair] * 1.15
                assert outcome.by == (at if at in pair else pair[0])
                estimate = cluster.at(at).daemon.context.directory.estimate_rtt_ms(*reversed(pair))
                assert estimate.source == ("probes" if at in pair else "measured")
                assert estimate.rtt_ms == pytest.approx(RTT_MS[pair], rel=0.15)

    measuring(tmp_path, test)


@pytest.mark.one_part_per_commit("directories in virtual time", parts=6)
def test_fresh_pairs_are_measured_again_only_on_request(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        calls = count_asked(cluster, "b")
        first = await measured(cluster, "a", "bc", "bd")
        assert calls == [("c", "d")], "one call for all that is asked of a node"
        await cluster.sleep(50)
        assert await measured(cluster, "a", "cb", "bd") == {pair[:: 1 if pair[1] == "d" else -1]: m for pair, m in first.items()}
        assert len(calls) == 1
        await measured(cluster, "a", "bc", max_age_s=40)
        assert calls[1:] == [("c",)]
        await cluster.sleep(61)
        assert (await measured(cluster, "a", "bd"))["b", "d"] != first["b", "d"]
        assert calls[2:] == [("d",)]

    measuring(tmp_path, test, fresh_s=60.0)


def test_a_second_request_waits_for_the_running_measurement(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        calls = count_asked(cluster, "c")
        directory = cluster.at("a").daemon.context.directory
        asked = [cluster.call("a", directory.measure([pair])) for pair in [("c", "d"), ("d", "c")] * 20]
        await cluster.sleep(0.01)
        asked[0].cancel()
        found = await asyncio.gather(*asked[1:])
        assert len({outcome for outcomes in found for outcome in outcomes.values()}) == 1
        assert calls == [("d",)]

    measuring(tmp_path, test, burst_pairs=1)


def test_a_request_for_newer_values_starts_a_new_measurement(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await ask(cluster, "c", cluster.at("c").daemon.context.directory.measure([("c", "d")]))
        await cluster.sleep(5)
        calls = count_asked(cluster, "c")
        directory = cluster.at("a").daemon.context.directory
        asked = [cluster.call("a", directory.measure([("c", "d")], max_age_s=age_s)) for age_s in (60, 0, 60, 0)]
        old, new, also_new, again = [(await one)["c", "d"] for one in asked]
        assert new == also_new == again != old
        assert all(isinstance(one, Measurement) for one in (old, new))
        assert calls == [("d",)] * 2

    measuring(tmp_path, test)


def test_a_node_that_stops_ends_all_waits(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        directory = cluster.at("a").daemon.context.directory
        cluster.network.cut("a", "b", both=True)
        asked = cluster.call("a", directory.measure([("a", "b"), ("b", "c")]))
        await cluster.sleep(0.1)
        await cluster.answer("a", cluster.at("a").daemon.overlay.measurer.close())
        assert {outcome.code for outcome in (await asked).values()} == {"stopping"}
        assert (await refused(cluster, "a", "ac")).code == "stopping"

    measuring(tmp_path, test)


async def outcome_of(cluster: SimulatedCluster, at: str, pair: str) -> SbonError:
    outcome = (await measured(cluster, at, pair))[pair[0], pair[1]]
    assert isinstance(outcome, SbonError)
    return outcome


def test_nodes_out_of_reach_are_named_and_asked_anew_the_next_time(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        cluster.network.cut("a", "c", both=True)
        cluster.network.cut("b", "d", both=True)
        first, second, third = await asyncio.gather(*(outcome_of(cluster, "a", pair) for pair in ("bd", "ca", "cd")))
        assert (first.code, first.message, first.where) == ("no-answer", "d did not answer 3 pings of b within 0.3 s", "b")
        assert (second.code, second.message) == ("no-answer", "c did not answer 3 pings of a within 0.3 s")
        assert (third.code, third.where) == ("peer-unreachable", "c")
        cluster.network.heal()
        await cluster.sleep(20)
        assert all(isinstance(found, Measurement) for found in (await measured(cluster, "a", "bd", "ca", "cd")).values())

    measuring(tmp_path, test, ping_timeout_s=0.3)


def test_the_failure_detector_gets_no_measurements(tmp_path: Path) -> None:
    """Neither silence nor answers reach the detector: while it probes no other node it stays as it was."""

    async def test(cluster: SimulatedCluster) -> None:
        membership = cluster.at("b").daemon.membership
        for reachable in (True, False):
            if not reachable:
                cluster.network.cut("b", "d", both=True)
            await cluster.sleep(5)
            before = _state(membership)
            found = await measured(cluster, "b", "bd")
            assert isinstance(found["b", "d"], Measurement) == reachable
            assert _state(membership) == before
        assert membership._swim._probes._measuring == {}
        assert membership._pings._waiting == {}

    measuring(tmp_path, test, quiet=True, ping_timeout_s=0.3, fresh_s=1.0)


def _state(membership: Membership) -> object:
    swim = membership._swim
    return swim.awareness.score, len(swim._probes), [(m.name, m.state) for m in membership.members()], membership.space._moves


def test_a_node_that_died_is_no_longer_asked_nor_believed(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await measured(cluster, "a", "cd", "bd")
        cluster.crash(cluster.nodes["d"])
        membership = cluster.at("a").daemon.membership
        await cluster.until(lambda: membership.get("d").state == "dead")  # type: ignore[union-attr]
        assert (await refused(cluster, "a", "bc", "cd")).code == "node-away"
        assert cluster.at("a").daemon.context.directory.known(("c", "d")) is None

    measuring(tmp_path, test)


SILLY = [
    (("ab", "cc"), "bad-pair", "the latency from c to itself is not measured"),
    (("ax",), "unknown-node", "there is no node 'x'"),
    (("xa",), "unknown-node", "there is no node 'x'"),
    (("ab", "ac", "ad", "bc"), "too-many-pairs", "4 pairs, at most 3 are measured at once"),
]


@pytest.mark.parametrize("pairs, code, message", SILLY)
def test_invalid_requests_are_refused_before_anything_is_sent(
    tmp_path: Path, pairs: tuple[str, ...], code: str, message: str
) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        refusal = await refused(cluster, "a", *pairs)
        assert (refusal.code, refusal.message) == (code, message)
        assert refusal.hint
        assert cluster.at("a").daemon.context.directory.known(("a", "b")) is None

    measuring(tmp_path, test, max_pairs=3)


def test_a_large_request_is_deferred_and_then_served(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await measured(cluster, "a", "ab", "bc", "cd")
        refusal = await refused(cluster, "a", "ad", "bd")
        assert refusal.code == "too-many-measurements"
        assert "a has measured, or had measured, as much as it may" in refusal.message
        assert refusal.hint.startswith("come again in ")
        again_s = float(refusal.hint.split()[3])
        assert 3 < again_s <= 4
        await cluster.sleep(again_s)
        assert len(await measured(cluster, "a", "ad", "bd")) == 2
        assert cluster.at("a").daemon.operations.status().counters["measurement-refused"] == 1

    measuring(tmp_path, test, burst_pairs=3, pairs_per_s=0.5)


def test_a_node_that_many_ask_defends_itself(tmp_path: Path) -> None:
    """However many ask it: those it refuses hear so, and the others are served."""

    async def test(cluster: SimulatedCluster) -> None:
        found = [(await measured(cluster, at, "da"))["d", "a"] for at in "bc"]
        found.append((await measured(cluster, "b", "dc"))["d", "c"])
        assert [isinstance(outcome, Measurement) for outcome in found] == [True, True, False]
        assert isinstance(found[2], SbonError)
        assert (found[2].code, found[2].where) == ("too-many-measurements", "d")
        assert found[2].message.startswith("d has measured")
        assert cluster.at("d").daemon.operations.status().counters["measurement-refused"] == 1

    measuring(tmp_path, test, burst_pairs=1, pairs_per_s=100.0, pairs_for_others_per_s=0.01)


def test_a_greedy_caller_is_refused_and_others_are_served(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        found = [(await measured(cluster, "b", "d" + target))["d", target] for target in "ac"]
        found.append((await measured(cluster, "a", "dc"))["d", "c"])
        assert [isinstance(outcome, Measurement) for outcome in found] == [True, False, True]
        assert isinstance(found[1], SbonError)
        assert (found[1].code, found[1].where) == ("too-many-measurements", "d")

    measuring(tmp_path, test, burst_pairs_for_one=1, pairs_for_one_per_s=0.01)


LIE = 12345.678
"""Stands for a number that our own encoder might not send."""
LIES = [
    (MeasuredRtt("b", rtt_ms=LIE), 0.0, "measurement-bad"),
    (MeasuredRtt("b", rtt_ms=LIE), 1e9, "measurement-bad"),
    (MeasuredRtt("b", rtt_ms=50.0, age_s=LIE), 125.0, "measurement-bad"),
    (MeasuredRtt("a", rtt_ms=50.0), 0.0, "measurement-bad"),
    (None, 0.0, "measurement-bad"),
    (MeasuredRtt("b", rtt_ms=LIE), -4.0, "reply-malformed"),
    (MeasuredRtt("b", rtt_ms=50.0, age_s=LIE), -1.0, "reply-malformed"),
    (MeasuredRtt("b", rtt_ms=LIE), math.nan, "frame-malformed"),
    (MeasuredRtt("b", rtt_ms=LIE), math.inf, "frame-malformed"),
]


@pytest.mark.parametrize("said, number, counted", LIES)
def test_impossible_results_are_refused_and_counted(
    tmp_path: Path, said: MeasuredRtt | None, number: float, counted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def liar(call: MeasureRtt, caller: Any) -> MeasuredRtts:
        return MeasuredRtts(() if said is None else (said,))

    def forged(frame: Frame) -> bytes:
        return encode_frame(frame).replace(struct.pack(">d", LIE), struct.pack(">d", number))

    async def test(cluster: SimulatedCluster) -> None:
        cluster.at("c").daemon.context.server.handle(MeasureRtt, liar)
        daemon = cluster.at("a").daemon
        before = daemon.context.directory.estimate_rtt_ms("b", "c")
        refusal = await outcome_of(cluster, "a", "cb")
        assert refusal.code in ("bad-answer", "bad-reply", "peer-unreachable")
        assert refusal.where == "c"
        assert daemon.operations.status().counters == {counted: 1}
        assert daemon.context.directory.estimate_rtt_ms("b", "c").source == before.source == "coordinates"

    monkeypatch.setattr("sbon_node.net.peers.encode_frame", forged)
    measuring(tmp_path, test)
