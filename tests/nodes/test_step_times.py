"""Times of the steps of a submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.base.clock import Clock
from sbon_node.queries.submitting.planning import StepTimes
from sbon_protocol.api.queries import Accepted, Submission
from tests.nodes.clusters import SQL, ask, declare, in_cluster, source_at


class Hand(Clock):
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s


def test_a_step_inside_another_counts_for_itself_only() -> None:
    clock = Hand()
    times = StepTimes(clock)
    with times.step("plan"):
        clock.now_s += 1
        for _ in range(2):
            with times.step("analyse"):
                clock.now_s += 2
        clock.now_s += 0.5
    with times.step("plan"):
        clock.now_s += 10
    assert times.seconds() == {"plan": 11.5, "analyse": 4.0}


def test_a_step_that_fails_is_counted() -> None:
    clock = Hand()
    times = StepTimes(clock)

    def refused() -> None:
        with times.step("place"):
            clock.now_s += 3
            raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        refused()
    with times.step("start"):
        clock.now_s += 1
    assert times.seconds() == {"place": 3.0, "start": 1.0}


def test_an_accepted_query_has_the_times_of_its_steps(tmp_path: Path) -> None:
    """Virtual time: planning and placing ask other nodes, the analysis asks none."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("a"))

        async def accepted() -> Accepted:
            submission = Submission(sql=SQL, consumer="c", strategy="producer")
            return [event async for event in cluster.at("b").daemon.submitting.submitter.submit(submission)][-1]  # type: ignore[return-value]

        seconds = (await ask(cluster, "b", accepted())).seconds
        assert set(seconds) == {"plan", "analyse", "share", "place", "reserve", "start"}
        assert seconds.pop("analyse") == 0
        assert min(seconds.values()) > 0

    in_cluster(tmp_path, "abc", test)
