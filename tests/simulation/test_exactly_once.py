"""Exactly once, in virtual time: whatever dies between any two steps, every row of a finite input arrives once.

Every failure names the command that replays it. The last part plants a bug for each rule of the design and shows that the
schedules of the first part catch it.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.simulation import engine
from sbon_node.simulation.faults import STEPS, Action, AtStep, Fault, every_step, random_plan
from sbon_node.simulation.harness import STAGE, Outcome, run_schedule
from sbon_node.steps import Step
from sbon_node.streams.credit import Credit
from sbon_node.streams.inbox import Inbox
from sbon_node.streams.ledger import NO_BATCH, Stream
from sbon_node.streams.outbox import Outbox
from sbon_node.streams.port import NodePort

EVERY_STEP = every_step(STAGE)
RANDOM_SCHEDULES = 500
CHUNK = 50


def _check(outcome: Outcome) -> None:
    assert not outcome.failure, "\n".join([*outcome.trace[-60:], outcome.failure])


def _triggers() -> list[tuple[str, Step]]:
    return list(dict.fromkeys((f.when.node, f.when.step) for (f,) in EVERY_STEP if isinstance(f.when, AtStep)))


def test_undisturbed() -> None:
    outcome = run_schedule((), seed=1)
    _check(outcome)
    assert outcome.checks > 100
    taken = {line.split()[2] for line in outcome.trace if line.split()[2] in STEPS}
    assert taken == set(STEPS), "the suite must pass every point at which it is to kill"


@pytest.mark.parametrize("node, step", _triggers())
def test_a_fault_at_every_step(node: str, step: Step) -> None:
    struck = 0
    for faults in EVERY_STEP:
        (fault,) = faults
        if isinstance(fault.when, AtStep) and (fault.when.node, fault.when.step) == (node, step):
            outcome = run_schedule(faults, seed=1)
            _check(outcome)
            struck += not outcome.unstruck
    assert struck > 5


@pytest.mark.parametrize("first", range(0, RANDOM_SCHEDULES, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        _check(run_schedule(random_plan(seed, STAGE), seed=seed))


def test_an_absent_consumer_bounds_memory_and_disk_and_loses_nothing() -> None:
    outcome = run_schedule([Fault(AtStep("c", "receive", 3), "kill", "c", down_s=300.0)], seed=3, rows=1500)
    _check(outcome)
    assert outcome.virtual_s > 300


def test_unbounded_memory_and_disk_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = [Fault(AtStep("c", "receive", 3), "kill", "c", down_s=300.0)]
    slow = [Fault(AtStep("c", "receive", 3), "slow", "c", down_s=60.0)]
    with monkeypatch.context() as patch:
        patch.setattr(Stream, "unreceived", lambda self: 0)
        assert "wait to be received" in run_schedule(absent, seed=3, rows=1500).failure
    with monkeypatch.context() as patch:
        patch.setattr(Credit, "allows", lambda self, size: True)
        patch.setattr(Inbox, "room_bytes", 10**9)
        assert "bytes held of" in run_schedule(slow, seed=3, rows=1500).failure


def test_a_full_disk_stops_the_operator_with_that_reason_and_it_resumes() -> None:
    outcome = run_schedule([Fault(AtStep("o", "plan", 3), "disk-full", "o", down_s=20.0)], seed=1)
    _check(outcome)
    assert any("first stopped" in line and "no room" in line for line in outcome.trace)
    assert outcome.virtual_s > 20


# -- the same seed, the same run ---------------------------------------------------------------------------------------


def _replayed(seed: int, hash_seed: str) -> str:
    command = [sys.executable, "-m", "sbon_node.simulation", "--seed", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    root = Path(__file__).parents[2]
    return subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("seed", [7, 23])
def test_the_same_seed_is_the_same_run_to_the_byte(seed: int) -> None:
    plan = random_plan(seed, STAGE)
    first, again = run_schedule(plan, seed=seed), run_schedule(plan, seed=seed)
    assert first == again
    assert first.trace != run_schedule(plan, seed=seed + 1).trace
    one, other = _replayed(seed, "1"), _replayed(seed, "4711")
    assert one == other
    assert "\n".join(first.trace) in one


# -- planted bugs ------------------------------------------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def publish_before_commit(patch: pytest.MonkeyPatch) -> None:
    honest = NodePort.write

    async def write(self: NodePort, batch: int, offsets: Any, drafts: Any) -> None:
        await honest(self, batch, offsets, drafts)
        self._outbox.publish(self.operator, batch)

    patch.setattr(NodePort, "write", write)


def replace_a_visible_batch(patch: pytest.MonkeyPatch) -> None:
    honest = Outbox.write_batch

    def write_batch(self: Outbox, stream: str, batch: int, offsets: Any, drafts: Any) -> Any:
        known = self._operator(stream)
        if batch == known.visible.batch:
            with self._store.transaction() as connection:
                change = (drafts[0].payload, drafts[0].rows, known.base + known.visible.last)
                connection.execute("UPDATE frames SET payload = ?, rows = ? WHERE id = ?", change)
            return "replaced"
        return honest(self, stream, batch, offsets, drafts)

    patch.setattr(Outbox, "write_batch", write_batch)


def drop_an_unseen_batch(patch: pytest.MonkeyPatch) -> None:
    honest = Outbox.write_batch

    def write_batch(self: Outbox, stream: str, batch: int, offsets: Any, drafts: Any) -> Any:
        if NO_BATCH < batch <= self.newest(stream):
            return "dropped"
        return honest(self, stream, batch, offsets, drafts)

    patch.setattr(Outbox, "write_batch", write_batch)


def acknowledge_early(patch: pytest.MonkeyPatch) -> None:
    honest = NodePort.write

    async def write(self: NodePort, batch: int, offsets: Any, drafts: Any) -> None:
        await honest(self, batch, offsets, drafts)
        self._acknowledge(offsets)

    patch.setattr(NodePort, "write", write)


def trim_early(patch: pytest.MonkeyPatch) -> None:
    def floor(self: Stream) -> int:
        return min((one.received for one in self.active()), default=0)

    patch.setattr(Stream, "floor", floor)


def two_hosts_on_one_checkpoint(patch: pytest.MonkeyPatch) -> None:
    async def take(self: Any, checkpoint: Path, process: Any) -> None:
        await asyncio.sleep(0)

    patch.setattr(engine.CheckpointLocks, "take", take)


def position_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    honest = Outbox.write_source

    def write_source(self: Outbox, stream: str, drafts: Any, position: bytes) -> None:
        honest(self, stream, drafts, self.position(stream) or b"0")
        honest(self, stream, [], position)

    patch.setattr(Outbox, "write_source", write_source)


def commit_without_its_row_not_repaired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodePort, "has_batch", lambda self, batch: True)


def empty_commit_not_repaired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchLog, "is_committed", lambda self, batch: True)


PLANTED: list[tuple[Patch, Action, str]] = [
    (publish_before_commit, "kill", "is visible, batch .* is committed"),
    (replace_a_visible_batch, "repeat", "was seen with other content"),
    (drop_an_unseen_batch, "power", "rows missing|is at frame|other content"),
    (acknowledge_early, "kill", "and has finished with"),
    (trim_early, "kill", "trimmed to frame"),
    (two_hosts_on_one_checkpoint, "orphan", "took over"),
    (position_outside_the_transaction, "kill", "too many"),
    (commit_without_its_row_not_repaired, "lose-row", "committed batch"),
    (empty_commit_not_repaired, "power", "cannot be read"),
]


@contextmanager
def _planted(bug: Patch) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        bug(patch)
        yield


@pytest.mark.parametrize("bug, provoked_by, symptom", PLANTED, ids=[bug.__name__ for bug, _, _ in PLANTED])
def test_a_planted_bug_is_caught(bug: Patch, provoked_by: Action, symptom: str) -> None:
    """By some schedule of the suite, the likely ones tried first; the same schedule passes without the bug."""
    with _planted(bug):
        caught = next(_catches(provoked_by), None)
    assert caught is not None, "no schedule of the suite catches it"
    faults, outcome = caught
    assert re.search(symptom, outcome.failure), outcome.failure
    _check(run_schedule(faults, seed=1))


def _catches(first: Action) -> Iterator[tuple[tuple[Fault, ...], Outcome]]:
    for faults in sorted(EVERY_STEP, key=lambda faults: faults[0].action != first):
        outcome = run_schedule(faults, seed=1)
        if outcome.failure:
            yield faults, outcome
