"""Kills, full disks and failures between connector and outbox: nothing is lost or repeated, and what is wrong is told."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from sbon_node.base.clock import Clock
from sbon_node.connectors.interface import Chunk
from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.errors import SbonError
from tests.connectors.source_worlds import Killed, Scripted, World, numbers, rows_of


@pytest.mark.parametrize("pause_s", [0.0, 0.04])
def test_killed_at_every_step_and_run_again_the_rows_are_the_same(tmp_path: Path, pause_s: float) -> None:
    script: list[list[int | None]] = [[i * 300 + j * 10 - (900 if j == 3 else 0) + 10_000 for j in range(8)] for i in range(12)]
    script[5][2] = None
    (tmp_path / "whole").mkdir()
    whole = World(tmp_path / "whole", lambda: Scripted(script, pause_s))
    expected = rows_of(whole.run())
    for point in range(1, 200):
        folder = tmp_path / f"{point}"
        folder.mkdir()
        world = World(folder, lambda: Scripted(script, pause_s))
        left = itertools.count(-point + 1)

        def kill(step: str, left: Any = left) -> None:
            if next(left) == 0:
                raise Killed

        world.failpoint = kill
        try:
            world.run()
        except Killed:
            world.failpoint = lambda step: None
            found = world.run()
        else:
            assert point > 3
            break
        assert rows_of(found) == expected
        assert world.runner.counts.late == whole.runner.counts.late
        assert world.letters() == whole.letters()
        assert world.runner.state == "ended"
    else:
        pytest.fail("the source never ran to its end")


def test_a_full_disk_pauses_and_loses_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, lambda: Scripted([[1000, None], [2000, 3000]]))
    refusals = iter([True, True, False, True])
    write = Outbox.write_source

    def full(self: Outbox, *args: Any) -> None:
        if next(refusals, False):
            raise SbonError("disk-full", "no space for more frames")
        write(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outbox, "write_source", full)
        assert numbers(world.run()) == [0, 2, 3]
    assert ("paused", "no space for more frames") in world.states
    assert world.states[-1] == ("ended", "")
    assert len(world.letters()) == 1


@pytest.mark.parametrize("fails", ["open", "read"])
@pytest.mark.parametrize("code", ["file-not-found", "file-unreadable", "bad-header", "missing-columns", "endpoint-unreachable"])
def test_a_temporary_failure_is_retried_ever_later_without_loss(tmp_path: Path, code: str, fails: str) -> None:
    tries: list[float] = []

    class Missing(Scripted):
        def missing(self) -> None:
            tries.append(Clock().now())
            if len(tries) < 9:
                raise SbonError(code, "there is no file x", where="options.path", hint="it has to lie on the source's node")

        async def open(self, position: bytes | None) -> None:
            await super().open(position)
            if fails == "open":
                self.missing()

        async def read(self) -> Chunk | None:
            if fails == "read" and self.next == 1:
                self.missing()
            return await super().read()

    world = World(tmp_path, lambda: Missing([[1000, 2000], [3000, 4000]]), retry_s=1.0, retry_max_s=20.0)
    assert numbers(world.run()) == [0, 1, 2, 3]
    assert ("paused", "options.path: there is no file x (it has to lie on the source's node)") in world.states
    assert world.states[-1] == ("ended", "")
    pauses = [round(later - earlier) for earlier, later in itertools.pairwise(tries)]
    assert pauses[-3:] == [20, 20, 20]
    assert pauses == sorted(pauses)


@pytest.mark.parametrize("code", ["source-changed", "bad-option", "outbox-corrupt"])
def test_a_permanent_failure_fails_the_source_with_its_reason(tmp_path: Path, code: str) -> None:
    class Wrong(Scripted):
        async def open(self, position: bytes | None) -> None:
            raise SbonError(code, "it cannot be", where="options.path")

    world = World(tmp_path, lambda: Wrong([[1000]]))
    assert world.run(read=False) == []
    assert world.states == [("failed", "options.path: it cannot be")]
    assert (world.told.state, world.told.trouble) == (
        "failed: options.path: it cannot be",
        "it cannot be",
    )


@pytest.mark.parametrize("call", [1, 2, 3])
def test_killed_between_dead_letters_and_frames_no_letter_is_repeated(tmp_path: Path, call: int) -> None:
    world = World(tmp_path, lambda: Scripted([[1000, None], [None, 2000], [3000], [None]], pause_s=0.2))
    calls = itertools.count(1)
    write = Outbox.write_source

    def killed(self: Outbox, *args: Any) -> None:
        if next(calls) == call:
            raise Killed
        write(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outbox, "write_source", killed)
        with pytest.raises(Killed):
            world.run()
    assert numbers(world.run()) == [0, 3, 4]
    assert [letter["line"] for letter in world.letters()] == [2, 3, 6]
