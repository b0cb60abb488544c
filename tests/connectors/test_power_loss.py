"""The loss of power at every call of a file sink's real code: what was acknowledged is there, and every row is there once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from sbon_lab.simulation.faults.power_loss import ForgetfulDisk, PowerLostError, Survives
from sbon_node.base import disk
from sbon_node.connectors.sinks import file
from sbon_node.connectors.sinks.delivery_position import DeliveryPosition, DeliveryPositionFile
from sbon_protocol.errors import SbonError
from tests.connectors.file_sinks import FORMATS, World, opened, withdrawn
from tests.connectors.sent_streams import EXPECTED

SURVIVES: tuple[Survives, ...] = ("synced", "names", "all")


def outlives(folder: Path, name: str, survives: Survives, lost_at: int) -> bool:
    """Whether the run came to its end before that call; raises ``AssertionError`` where the result is not what it should be."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    world, forgetful = World(folder / name, part_s=0.1), ForgetfulDisk(folder)
    forgetful.lost_at = lost_at
    with forgetful.watched():
        try:
            world.run()
        except PowerLostError:
            finished = False
        else:
            finished = True
    forgetful.lose_power(survives)
    if world.fresh:
        return finished  # it was never opened: the submission had no answer
    held = opened(world.options, fresh=False).positions()
    assert all(held.get(stream, 0) >= number for stream, number in world.acknowledged.items()), (held, world.acknowledged)
    world.run()
    assert world.rows() == EXPECTED
    return finished


@pytest.mark.parametrize("survives", SURVIVES)
@pytest.mark.parametrize("name", FORMATS)
def test_power_lost_at_any_call_loses_and_doubles_nothing(tmp_path: Path, name: str, survives: Survives) -> None:
    calls = next(number for number in range(1, 1000) if outlives(tmp_path / "w", name, survives, number))
    assert calls > 10


def keeps_its_word(folder: Path, name: str, killed_at: int) -> bool:
    """As :func:`outlives`; the process is killed at that call, and its successor has reported its position when power is lost."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    world, forgetful = World(folder / name, part_s=0.1), ForgetfulDisk(folder)
    forgetful.lost_at = killed_at
    with forgetful.watched():
        try:
            world.run()
        except PowerLostError:
            finished = False
        else:
            finished = True
        forgetful.lost_at = None
        told = {} if world.fresh else opened(world.options, fresh=False).positions()
    forgetful.lose_power("synced")
    held = {} if world.fresh else opened(world.options, fresh=False).positions()
    assert all(held.get(stream, 0) >= number for stream, number in told.items()), (held, told)
    return finished


@pytest.mark.parametrize("name", FORMATS)
def test_the_position_of_a_successor_survives_the_loss_of_power(tmp_path: Path, name: str) -> None:
    """A kill between the renaming of the position and the sync of its name: the successor finds it, and acknowledges."""
    assert next(number for number in range(1, 1000) if keeps_its_word(tmp_path / "w", name, number)) > 10


def test_a_position_read_after_a_kill_survives_the_loss_of_power(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    disk_ = ForgetfulDisk(folder)
    with disk_.watched():
        file = DeliveryPositionFile(folder, "mine")
        file.make()
        disk_.lost_at = disk_.calls + 3
        with pytest.raises(PowerLostError):  # after the rename, before the sync of the folder
            file.store(DeliveryPosition(streams={"q": 7}))
        disk_.lost_at = None
        assert file.take_up().streams == {"q": 7}
    disk_.lose_power("synced")
    assert DeliveryPositionFile(folder, "mine").take_up().streams == {"q": 7}


def test_a_result_that_was_withdrawn_does_not_come_back(tmp_path: Path) -> None:
    for name in FORMATS:
        folder = tmp_path / name / "results"
        folder.mkdir(parents=True)
        forgetful = ForgetfulDisk(folder)
        with forgetful.watched():
            world = World(folder / name, part_s=0.1)
            world.run()
            withdrawn(world.options, delivered=True)
        forgetful.lose_power("synced")
        assert not list(folder.iterdir())


def _does_nothing(*given: object) -> None:
    return None


def rows_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(file, "os", SimpleNamespace(access=os.access, W_OK=os.W_OK, X_OK=os.X_OK, fsync=_does_nothing))


def position_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(disk, "_write", lambda path, content: path.write_bytes(content))


def names_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(disk, "sync_path", _does_nothing)


def part_names_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(file, "sync_path", _does_nothing)
    patch.setattr(disk, "sync_path", _does_nothing)


def claim_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(file, "sync_path", _does_nothing)


def position_before_rows(patch: pytest.MonkeyPatch) -> None:
    """The rows of a flush are written with the next one."""
    honest = file.FileSink._append
    kept: list[bytes] = []

    def late(self: file.FileSink, position: file.FilePosition) -> file.FilePosition:
        stated = honest(self, position)
        kept.append(self.path.read_bytes()[self._position.length :])
        with self.path.open("r+b") as file:
            file.truncate(self._position.length)
        return stated

    patch.setattr(file.FileSink, "_append", late)


@pytest.mark.parametrize(
    "bug, name",
    [
        (rows_not_synced, "out.csv"),
        (rows_not_synced, "out.parquet"),
        (position_not_synced, "out.csv"),
        (names_not_synced, "out.csv"),
        (part_names_not_synced, "out.parquet"),
        (claim_not_synced, "out.csv"),
        (position_before_rows, "out.csv"),
    ],
)
def test_a_sync_or_an_order_left_out_is_noticed(
    tmp_path: Path, bug: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    tried = ((survives, number) for survives in SURVIVES for number in range(1, 60))
    with pytest.raises((AssertionError, SbonError, duckdb.Error)):
        any(outlives(tmp_path / "w", name, survives, number) and number > 1000 for survives, number in tried)
