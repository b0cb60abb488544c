"""``sbon bench chaos`` without its nodes: the schedule of faults, the queries, and the comparison of rows."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest

from sbon_lab.chaos.faults import ACTIONS, LOSES_DISK, Stage, draw
from sbon_lab.chaos.picture import draw as draw_picture
from sbon_lab.chaos.run import result
from sbon_lab.chaos.suite_queries import Outcome
from sbon_lab.chaos.timeline import Timeline
from sbon_lab.chaos.verdict import Verdict, judged
from sbon_lab.chaos.workload import LOCAL_STRATEGIES, over, plan, streams_of
from sbon_lab.commands.bench import BAD
from sbon_protocol.api.durability import LOCAL, REPLICATED

STAGE = Stage(pinned=("a", "b", "c", "d"), free=("e", "f"))
AT = datetime(2020, 1, 1, tzinfo=UTC)


def test_a_seed_draws_the_same_schedule_and_another_seed_another() -> None:
    assert draw(7, 600.0, STAGE) == draw(7, 600.0, STAGE)
    assert draw(7, 600.0, STAGE) != draw(8, 600.0, STAGE)


@pytest.mark.parametrize("seed", range(20))
def test_ten_minutes_have_each_fault_thrice_and_two_minutes_ten_kinds(seed: int) -> None:
    faults = draw(seed, 600.0, STAGE)
    assert min(Counter(fault.action for fault in faults)[action] for action in ACTIONS) >= 3
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert faults[-1].at_s < 600.0
    assert len({fault.action for fault in draw(seed, 120.0, STAGE)}) == 10


def test_only_free_nodes_lose_their_disk() -> None:
    for fault in draw(1, 6000.0, STAGE):
        assert set(fault.nodes) == set(STAGE.free if fault.action in LOSES_DISK else STAGE.nodes)


def test_only_chosen_faults_are_drawn() -> None:
    assert {fault.action for fault in draw(1, 120.0, STAGE, ("cut", "kill"))} == {"cut", "kill"}


def test_local_queries_stay_at_nodes_that_keep_their_disk() -> None:
    queries = list(islice(plan(3), 40))
    assert queries == list(islice(plan(3), 40))
    assert {query.durability for query in queries} == {LOCAL, REPLICATED}
    assert all(query.strategy in LOCAL_STRATEGIES for query in queries if query.durability == LOCAL)
    assert len({query.case.name for query in queries[:16]}) == 16


def test_a_query_reads_streams_of_its_own() -> None:
    case = next(query.case for query in plan(1) if query.case.name == "join_left")
    names = streams_of(case, ("flights", "weather", "metrics"))
    assert names == ["flights", "weather"]
    text = over(case, {name: f"q1_{name}" for name in names})
    assert text.startswith("WITH flights AS (SELECT * FROM q1_flights), weather AS (SELECT * FROM q1_weather) SELECT f.ts")


@pytest.mark.parametrize(
    "rows, verdict",
    [
        ([(1, 0.1 + 0.2, AT), (2, None, AT)], Verdict()),
        ([(2, None, AT), (1, 0.3, AT)], Verdict()),
        ([(1, 0.3, AT)], Verdict(lost=1)),
        ([(1, 0.3, AT), (1, 0.3, AT), (2, None, AT)], Verdict(doubled=1)),
        ([(1, 0.3, AT), (2, None, AT), (3, None, AT)], Verdict(wrong=1)),
        ([(1, 0.4, AT), (2, None, AT)], Verdict(wrong=1, lost=1)),
        ([(1, 0.3000001, AT), (2, None, AT)], Verdict(wrong=1)),
        ([], Verdict(lost=2)),
    ],
)
def test_rows_are_wrong_lost_or_doubled(rows: list[tuple[object, ...]], verdict: Verdict) -> None:
    assert judged(rows, [(1, 0.3, AT), (2, None, AT)]) == verdict


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_the_picture_and_the_numbers_are_written(tmp_path: Path) -> None:
    timeline = Timeline()
    with timeline.during("kill", "london"):
        pass
    timeline.note("fault", "drain", "", "not possible: another fault lasts", struck=False)
    outcomes = [
        Outcome("q0-star", REPLICATED, 1.0, 30.0, "finished", 12),
        Outcome("q1-union", LOCAL, 2.0, 40.0, "finished", 11, Verdict(lost=1)),
        Outcome("q2-join", LOCAL, 2.0, 40.0, "stuck", reason="running"),
    ]
    found = result(7, 120.0, outcomes, Counter({"kill": 1}), ["drain: timeout"], timeline.rows())
    (row,) = found["rows"]
    assert {name: row[name] for name in ("finished", "failed", *BAD, "kill", "drain")} == {
        **dict.fromkeys(BAD, 0),
        "finished": 2,
        "lost": 1,
        "stuck": 2,
        "kill": 1,
        "drain": 0,
    }
    files = draw_picture(found, tmp_path)
    assert [file.name for file in files] == ["chaos.json", "chaos.png", "chaos.svg"]
    assert json.loads(files[0].read_text())["queries"][1]["lost"] == 1
