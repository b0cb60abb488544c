"""Many random schedules: what they count, and how a failing one is shrunk to a command."""

from __future__ import annotations

import asyncio
import functools
import re
import shlex
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from sbon_lab.bench import schedules
from sbon_lab.simulation import leak_check, schedule
from sbon_lab.simulation.__main__ import main
from sbon_lab.simulation.casting import NODES, Casting, Life, PlannedQuery
from sbon_lab.simulation.faults.plan import ACTIONS, AtFailpoint, AtTime, Fault
from sbon_lab.simulation.query_kinds import ORACLES, windows
from sbon_lab.simulation.schedule import COUNTED, random_schedule, run_schedule
from sbon_lab.simulation.shrink import shrink
from sbon_node.connectors.sinks.runner import SinkRunner
from sbon_node.hosting.machine.capacity import Reservations

SHORT = 5
"""A seed of a world whose schedule with moves takes little time."""


@pytest.mark.parametrize("needed", [set(), {3}, {0, 7}, {2, 5, 6}])
def test_a_schedule_is_shrunk_to_the_faults_that_it_needs(needed: set[int]) -> None:
    assert set(shrink(range(8), lambda fewer: needed <= set(fewer))) == needed


def test_shrinking_ends_after_a_number_of_runs_with_a_schedule_that_fails() -> None:
    runs = 0

    def fails(fewer: Sequence[int]) -> bool:
        nonlocal runs
        runs += 1
        return {1, 60} <= set(fewer)

    assert {1, 60} <= set(shrink(range(100), fails, most_runs=7))
    assert runs == 7


def test_portions_hold_each_seed_once_and_one_world_each() -> None:
    portions = list(schedules._portions(130, 333))
    assert sorted(seed for portion in portions for seed in portion) == list(range(130, 130 + 333))
    assert all(len({seed % schedules.WORLDS for seed in portion}) == 1 for portion in portions)


@pytest.mark.one_part_per_commit("counts of schedules", parts=3)
def test_schedules_in_another_process_are_counted() -> None:
    (row,) = schedules.run(SHORT, 1, processes=1)["rows"]
    assert (row["seeds"], row["failed"], row["stuck"], row["failures"]) == (1, 0, 0, [])
    assert set(row["struck"]) == set(COUNTED)
    assert 0 < row["schedules_with_a_committed_move"] <= row["struck"]["move"]
    assert row["schedules_with_a_given_up_move"] <= row["struck"]["stay"]
    faults = random_schedule(SHORT, moves=True).faults
    assert 0 < sum(row["struck"][action] for action in ACTIONS) <= len(faults)
    assert row["checks"] > 400


@pytest.mark.one_part_per_commit("counts of schedules", parts=3)
def test_a_failing_schedule_is_shown_whole_and_shrunk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = (Fault(AtTime(1.0), "slow-disk", "o"),)
    random_schedule(SHORT, moves=True)  # its undisturbed run passes without the bug
    monkeypatch.setattr(
        schedules, "random_schedule", lambda seed, moves: random_schedule(SHORT, moves=moves)._replace(faults=faults)
    )
    monkeypatch.setattr(Reservations, "release", lambda self, operator, owner="": None)
    monkeypatch.setattr(leak_check, "SETTLE_S", 30.0)
    (failed,) = schedules._try_one(SHORT).failed
    assert failed.stuck
    assert "free of" in failed.reason
    assert failed.shrunk == failed.replay.replace(shlex.quote(msgspec.json.encode(faults).decode()), "'[]'")
    monkeypatch.setattr("sys.argv", ["simulation", *shlex.split(failed.replay)[3:], "--shrink"])
    assert main() == 1
    assert "shrunk to 0 faults: python -m sbon_lab.simulation" in capsys.readouterr().out


@pytest.mark.one_part_per_commit("counts of schedules", parts=3)
def test_a_world_that_fails_without_faults_is_counted_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "_undisturbed", functools.cache(schedule._undisturbed.__wrapped__))
    monkeypatch.setattr(Reservations, "release", lambda self, operator, owner="": None)
    monkeypatch.setattr(leak_check, "SETTLE_S", 30.0)
    tried = schedules._try([SHORT, SHORT + schedules.WORLDS])
    assert (tried.seeds, [failed.seed for failed in tried.failed]) == (2, [SHORT, SHORT + schedules.WORLDS])
    assert all("free of" in failed.reason and failed.replay.endswith("--faults '[]'") for failed in tried.failed)


def test_an_error_of_the_simulation_is_counted_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    random_schedule(SHORT, moves=True)

    def broken(*args: Any, **kwargs: Any) -> None:
        raise KeyError("h")

    monkeypatch.setattr(schedules, "run_schedule", broken)
    (failed,) = schedules._try_one(SHORT).failed
    assert (failed.reason, failed.stuck) == ("KeyError: 'h'", False)
    assert "--faults" in failed.replay


SEVERAL = Casting(
    room=("o", "h"),
    queries=(
        PlannedQuery(name="kept", lives=(Life(sql="window", sources=("s", "o")),)),
        PlannedQuery(name="other", lives=(Life(consumer="h", submitter="c"),)),
        PlannedQuery(name="stopped", lives=(Life(stop_after_s=0.5, stop_at="o"),)),
    ),
)


def test_several_queries_run_at_once_and_one_is_stopped() -> None:
    outcome = run_schedule((), seed=1, casting=SEVERAL)
    assert not outcome.failure
    assert outcome.ending == "finished finished stopped"


TWINS = Casting(
    queries=(
        PlannedQuery(name="twin", lives=(Life(),)),
        PlannedQuery(name="twin", lives=(Life(submitter="c", consumer="h", after_s=2.0),)),
    )
)


def test_a_second_query_of_a_name_is_refused_at_another_node() -> None:
    outcome = run_schedule((), seed=1, casting=TWINS)
    assert not outcome.failure
    assert outcome.ending == "finished refused"


def test_a_checkpoint_that_an_orphaned_engine_process_writes_again_is_deleted() -> None:
    """The query is stopped after its host's restart, before the orphan commits the batch of its earlier life."""
    for seconds in (1.1, 1.3, 1.5):
        casting = Casting(queries=(PlannedQuery(name="q", lives=(Life(stop_after_s=seconds - 0.15, stop_at="c"),)),))
        outcome = run_schedule([Fault(AtTime(seconds), "orphan", "o", down_s=0.2)], seed=1, casting=casting)
        assert not outcome.failure


def test_a_leader_that_returns_with_a_state_that_was_not_chosen_follows_the_chosen_one() -> None:
    """The leader dies before other acceptors have its change of the record to running; they agree that the query has failed."""
    casting = Casting(submitter="c", room=NODES, strategy="random", fsync=False)
    outcome = run_schedule([Fault(AtFailpoint("c", "ask", 21), "kill", "c", down_s=18.5)], seed=32, casting=casting)
    assert not outcome.failure
    assert outcome.ending == "refused"


def test_a_row_that_a_window_counts_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
        (count, ids), *others = windows(rows)
        return [(int(str(count)) - 1, ids), *others]

    monkeypatch.setitem(ORACLES, "window", counted)
    assert "rows missing" in run_schedule((), seed=1, casting=SEVERAL).failure


def test_a_query_that_never_ends_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    async def take_frames(self: SinkRunner) -> bool:
        await asyncio.get_running_loop().create_future()
        return False

    monkeypatch.setattr(leak_check, "LIVENESS_S", 60.0)
    monkeypatch.setattr(SinkRunner, "_take_frames", take_frames)
    outcome = run_schedule([Fault(AtTime(1.0), "kill", "o")], seed=1)
    assert outcome.stuck
    assert re.search(r"the query is running \d+ s after the last fault", outcome.failure)
    assert 60 < outcome.virtual_s < 120
