"""The loss of power at every call of a checkpoint's real code: each batch that was shown stays committed, its state with it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sbon_lab.simulation.faults.power_loss import ForgetfulDisk, PowerLostError, Survives
from sbon_node.engine import checkpoint
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.model.frames import InputOffset

SURVIVES: tuple[Survives, ...] = ("synced", "names", "all")
BATCHES = 4

MORE_SURVIVES = pytest.mark.only_in_test_all("losses of power that spare more than what was synced")


class World:
    """An operator with state on a node whose data folder is durable; ``visible`` is in the outbox, which loses nothing."""

    show_first = False

    def __init__(self, data: Path) -> None:
        self.folder = data / "operators" / "query.b0"
        self.visible = -1
        self.stored: set[int] = set()

    def run(self) -> None:
        """Repair the checkpoint and continue to the last batch, as node and Spark do it together."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log = BatchLog(self.folder, fsync=True)
        committed = log.repair(self.stored.__contains__, self.visible)
        log.sync()
        for batch in range(0 if committed is None else committed + 1, BATCHES):
            log.write_offsets(batch, at(batch), watermark_ms=batch)
            self._write_state(batch)
            self.stored.add(batch)
            log.write_commit(batch, batch + 1)
            self._remove_old(batch)
            if self.show_first:
                self.visible = batch
            log.sync()
            self.visible = batch

    def check(self) -> None:
        """A machine that starts again finds what it has shown."""
        log = BatchLog(self.folder, fsync=True)
        committed = log.repair(self.stored.__contains__, self.visible)
        assert (-1 if committed is None else committed) == self.visible
        if committed is not None:
            assert log.read_offsets(committed) == at(committed)
            assert log.read_watermark(committed) == committed
            assert log.read_next_watermark(committed) == committed + 1
            assert [self._state(batch).read_bytes() for batch in range(committed + 1)] == [
                b"%d" % b for b in range(committed + 1)
            ]

    def _write_state(self, batch: int) -> None:
        state = self._state(batch)
        state.parent.mkdir(parents=True, exist_ok=True)
        scratch = state.with_name(f".{state.name}.tmp")
        scratch.write_bytes(b"%d" % batch)
        scratch.rename(state)

    def _remove_old(self, batch: int) -> None:
        for log in ("offsets", "commits"):
            (self.folder / log / f"{batch - 2}").unlink(missing_ok=True)

    def _state(self, batch: int) -> Path:
        return self.folder / "state" / "0" / f"{batch % 2}" / f"{batch + 1}.delta"


class ShowsFirst(World):
    show_first = True


def at(batch: int) -> tuple[InputOffset, ...]:
    return (InputOffset(frame=batch + 1, watermark_ms=batch),)


def outlives(data: Path, survives: Survives, lost_at: int, kind: type[World] = World) -> bool:
    """Whether the run came to its end before that call; raises where the checkpoint is not what it should be."""
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    world, disk = kind(data), ForgetfulDisk(data)
    disk.lost_at = lost_at
    finished = False
    with disk.watched():
        try:
            world.run()
            finished = True
        except PowerLostError:
            pass
        disk.lost_at = None
    disk.lose_power(survives)
    world.check()
    world.run()
    assert world.visible == BATCHES - 1
    world.check()
    return finished


@pytest.mark.parametrize("survives", [pytest.param(one, marks=() if one == "synced" else MORE_SURVIVES) for one in SURVIVES])
def test_power_lost_at_any_call_takes_no_batch_back_that_was_shown(tmp_path: Path, survives: Survives) -> None:
    calls = next(number for number in range(1, 1000) if outlives(tmp_path / "data", survives, number))
    assert calls > 40


def _only(wanted: Callable[[Path], bool]) -> Callable[[pytest.MonkeyPatch], None]:
    honest = checkpoint._sync

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(checkpoint, "_sync", lambda path: honest(path) if wanted(path) else None)

    return plant


files_only = _only(lambda path: not path.is_dir())
folders_only = _only(lambda path: path.is_dir())
logs_only = _only(lambda path: "state" not in path.parts)
without_the_way_there = _only(lambda path: "query.b0" in path.parts)
without_its_name = _only(lambda path: path.name != "operators")
nothing_at_all = _only(lambda path: False)


def folders_once(patch: pytest.MonkeyPatch) -> None:
    """A folder that was synced once is taken for synced, whatever names it has gained."""
    honest = checkpoint._look

    def look(folder: Path) -> Iterator[tuple[Path, object]]:
        for path, version in honest(folder):
            yield path, None if path.is_dir() else version

    patch.setattr(checkpoint, "_look", look)


BUGS = {
    "files only": files_only,
    "folders only": folders_only,
    "logs only": logs_only,
    "not the folders above": without_the_way_there,
    "not its own name": without_its_name,
    "nothing": nothing_at_all,
    "each folder once": folders_once,
}


def _is_noticed(data: Path, kind: type[World] = World) -> bool:
    for survives in SURVIVES:
        for number in range(1, 120):
            try:
                if outlives(data, survives, number, kind):
                    break
            except (AssertionError, OSError):
                return True
    return False


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_sync_left_out_is_noticed(
    tmp_path: Path, bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    assert _is_noticed(tmp_path / "data")


def test_a_batch_shown_before_its_sync_is_noticed(tmp_path: Path) -> None:
    assert _is_noticed(tmp_path / "data", ShowsFirst)
