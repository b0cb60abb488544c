"""The files of a copied checkpoint, its limits, and its check where it arrives."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.checkpoint_copy import copy_checkpoint, install_checkpoint
from sbon_node.engine.manifest import Manifest
from sbon_node.model.frames import InputOffset
from sbon_protocol.errors import SbonError

BATCH = 7
MUCH = {"max_files": 1000, "max_bytes": 10**6}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 4 to 9 of an operator; batch 9 is planned only."""
    folder = tmp_path / "checkpoint"
    log = BatchLog(folder)
    for batch in range(4, 10):
        log.write_offsets(batch, (InputOffset(frame=batch, incarnation=3),), watermark_ms=batch - 1)
    for batch in range(4, 9):
        log.write_commit(batch, next_watermark_ms=batch)
    write(folder, "metadata", "state/0/_metadata/metadata", "state/0/0/_metadata/schema")
    return folder


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def names(manifest: Manifest, under: str) -> list[str]:
    return sorted(file.path.removeprefix(under) for file in manifest.files if file.path.startswith(under))


def snapshot(folder: Path, name: str, *tables: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": [{"dfsSstFileName": table} for table in tables]}))


def test_the_newest_snapshot_and_later_changes_are_copied(checkpoint: Path, tmp_path: Path) -> None:
    deltas = [f"{version}.delta" for version in range(3, 11)]
    write(checkpoint, *(f"state/0/0/left/{name}" for name in (*deltas, "4.snapshot", "6.snapshot", "9.snapshot", ".9.x.tmp")))
    write(checkpoint, *(f"state/0/0/right/{version}.delta" for version in range(1, 11)))

    manifest = copy_checkpoint(checkpoint, BATCH, tmp_path / "copy", **MUCH)

    assert names(manifest, "state/0/0/left/") == ["6.snapshot", "7.delta", "8.delta"]
    assert names(manifest, "state/0/0/right/") == [f"{version}.delta" for version in range(1, 9)]
    assert names(manifest, "offsets/") == names(manifest, "commits/") == ["6", "7"]
    assert {"state/0/_metadata/metadata", "state/0/0/_metadata/schema"} <= set(names(manifest, ""))
    assert "metadata" not in names(manifest, ""), "the query's id"
    assert (manifest.batch, manifest.cut.frames, manifest.cut.watermark_ms, manifest.cut.next_watermark_ms) == (7, (7,), 6, 7)


def test_of_rocksdb_the_tables_of_the_newest_snapshot_are_copied(checkpoint: Path, tmp_path: Path) -> None:
    store = "state/0/0/left"
    write(checkpoint, *(f"{store}/{version}.changelog" for version in range(1, 11)))
    write(checkpoint, *(f"{store}/SSTs/{name}.sst" for name in "abc"))
    snapshot(checkpoint, f"{store}/3.zip", "a.sst")
    snapshot(checkpoint, f"{store}/6.zip", "a.sst", "b.sst")
    snapshot(checkpoint, f"{store}/9.zip", "c.sst")

    manifest = copy_checkpoint(checkpoint, BATCH, tmp_path / "copy", **MUCH)

    assert names(manifest, store) == ["/6.zip", "/7.changelog", "/8.changelog", "/SSTs/a.sst", "/SSTs/b.sst"]


def test_a_copy_outlives_the_deletion_of_its_files(checkpoint: Path, tmp_path: Path) -> None:
    write(checkpoint, *(f"state/0/0/{version}.delta" for version in range(1, 9)))
    manifest = copy_checkpoint(checkpoint, BATCH, tmp_path / "copy", **MUCH)
    for path in checkpoint.rglob("*"):
        if path.is_file():
            path.unlink()

    install_checkpoint(tmp_path / "copy", manifest, tmp_path / "installed")

    log = BatchLog(tmp_path / "installed")
    assert (log.offsets(), log.commits(), log.repair(lambda batch: True, BATCH)) == ([6, 7], [6, 7], 7)
    assert (tmp_path / "installed/metadata").exists(), "an id of its own"
    assert (tmp_path / "installed/state/0/0/8.delta").read_text() == "state/0/0/8.delta"


def test_a_copy_takes_the_place_of_files_that_were_written_late(checkpoint: Path, tmp_path: Path) -> None:
    """The operator was here before, and Spark has not ended all that it does for it."""
    write(checkpoint, *(f"state/0/0/{version}.delta" for version in range(1, 9)))
    manifest = copy_checkpoint(checkpoint, BATCH, tmp_path / "copy", **MUCH)
    write(tmp_path / "installed", "state/0/0/9.snapshot")
    install_checkpoint(tmp_path / "copy", manifest, tmp_path / "installed")
    installed = {
        path.relative_to(tmp_path / "installed").as_posix() for path in (tmp_path / "installed").rglob("*") if path.is_file()
    }
    assert installed == {file.path for file in manifest.files}


@pytest.mark.parametrize("gone", ["offsets/7", "offsets/6", "commits/7", "state/0/0/5.delta"])
def test_a_batch_of_which_a_file_is_deleted_is_not_copied(checkpoint: Path, tmp_path: Path, gone: str) -> None:
    write(checkpoint, *(f"state/0/0/{version}.delta" for version in range(1, 9)))
    (checkpoint / gone).unlink()
    assert refusal(checkpoint, tmp_path / "copy") == "checkpoint-superseded"
    assert not (tmp_path / "copy").exists()


def test_a_batch_that_is_only_planned_is_not_copied(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(SbonError, match="not kept"):
        copy_checkpoint(checkpoint, 9, tmp_path / "copy", **MUCH)


def test_an_unreadable_snapshot_is_not_copied(checkpoint: Path, tmp_path: Path) -> None:
    write(checkpoint, "state/0/0/6.zip", "state/0/0/7.changelog", "state/0/0/8.changelog")
    assert refusal(checkpoint, tmp_path / "copy") == "checkpoint-superseded"


@pytest.mark.parametrize("limits", [{"max_files": 5, "max_bytes": 10**6}, {"max_files": 1000, "max_bytes": 50}])
def test_a_copy_is_bounded(checkpoint: Path, tmp_path: Path, limits: dict[str, int]) -> None:
    assert refusal(checkpoint, tmp_path / "copy", **limits) == "checkpoint-too-large"
    assert not (tmp_path / "copy").exists()


def refusal(checkpoint: Path, into: Path, max_files: int = 1000, max_bytes: int = 10**6) -> str:
    with pytest.raises(SbonError) as caught:
        copy_checkpoint(checkpoint, BATCH, into, max_files=max_files, max_bytes=max_bytes)
    return caught.value.code


def test_a_file_that_has_changed_on_its_way_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    manifest = copy_checkpoint(checkpoint, BATCH, tmp_path / "copy", **MUCH)
    changed = manifest.files[-1]
    other = replace(manifest, files=(*manifest.files[:-1], replace(changed, digest="0" * 64)))
    with pytest.raises(SbonError) as caught:
        install_checkpoint(tmp_path / "copy", other, tmp_path / "installed")
    assert caught.value.code == "checkpoint-damaged"
    assert not (tmp_path / "installed").exists()
