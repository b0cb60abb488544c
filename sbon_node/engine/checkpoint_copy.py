"""A copy of a checkpoint as of one committed batch, made while its operator runs.

Spark deletes old files at any time. So the files are first given a second name (a hard link) in a folder of the copy; reading
and sending them may then take as long as it needs. Spark never changes a file that has its final name.

Batch b leaves version b + 1 of each state store. The copy has the newest full state up to that version and the changes after it:

- heap (``hdfs``): ``N.snapshot`` has all of version N, ``N.delta`` the changes from version N - 1;
- RocksDB: ``N.zip`` lists the files under ``SSTs`` that have version N, ``N.changelog`` has the changes from version N - 1.
"""

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Container, Iterator
from pathlib import Path

from sbon_node.base.disk import named_errors
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.manifest import CopiedFile, Manifest
from sbon_protocol.errors import SbonError

_VERSIONED = re.compile(r"([0-9]+)\.(snapshot|delta|zip|changelog)\Z")
_TABLES = "SSTs"
_MAX_LISTING_BYTES = 16 << 20
"""Largest list of the tables of one RocksDB store."""


def copy_checkpoint(
    checkpoint: Path, batch: int, into: Path, *, max_files: int, max_bytes: int, known: Manifest | None = None
) -> Manifest:
    """Link the checkpoint of a committed batch into the folder ``into`` on the same disk; return its manifest.

    Blocks while it hashes. With ``known``, the folder has that copy of the same checkpoint, and only files that are new in it are
    linked and hashed; files that it has no more are removed. Otherwise the folder is new; after an error nothing is left in it.

    Raises :class:`SbonError` ``checkpoint-superseded`` if Spark has deleted a file already (a newer batch can be copied),
    ``checkpoint-too-large``, ``disk-full`` or ``disk-error``.
    """
    had = {} if known is None else {file.path: file for file in known.files}
    with named_errors(into):
        into.mkdir(parents=True, exist_ok=known is not None)
        try:
            linked = _link(checkpoint, batch, into, max_files, max_bytes, had)
            files = tuple(had.get(path) or _described(into, path) for path in linked)
            manifest = Manifest(batch=batch, cut=BatchLog(into).read_cut(batch), files=files)
        except (FileNotFoundError, ValueError) as error:
            _clear(into, known)
            reason = f"batch {batch} is not kept any more: {error}"
            raise SbonError("checkpoint-superseded", reason, where=str(checkpoint)) from error
        except BaseException:
            _clear(into, known)
            raise
        for path in had.keys() - set(linked):
            (into / path).unlink(missing_ok=True)
        return manifest


def _clear(into: Path, known: Manifest | None) -> None:
    if known is None:
        shutil.rmtree(into, ignore_errors=True)


def install_checkpoint(copy: Path, manifest: Manifest, checkpoint: Path) -> None:
    """Copy the files of a copy into ``checkpoint``, in place of all that is there, and check them. Blocks.

    Raises :class:`SbonError` ``checkpoint-damaged``, and leaves nothing then.
    """
    with named_errors(checkpoint):
        # Spark may write there for a while after the operator has been here before.
        shutil.rmtree(checkpoint, ignore_errors=True)
        checkpoint.mkdir(parents=True)
        try:
            for file in manifest.files:
                target = checkpoint / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(copy / file.path, target)
                if _described(checkpoint, file.path) != file:
                    raise SbonError("checkpoint-damaged", f"{file.path} is not the file that was sent", where=str(checkpoint))
        except BaseException:
            shutil.rmtree(checkpoint, ignore_errors=True)
            raise


def copied_bytes(checkpoint: Path, batch: int) -> int | None:
    """Return the bytes that a copy of a committed batch has; None if Spark deletes files meanwhile. Blocks."""
    try:
        return sum(path.stat().st_size for path in _files(checkpoint, batch))
    except (OSError, ValueError):
        return None


def _link(checkpoint: Path, batch: int, into: Path, max_files: int, max_bytes: int, had: Container[str]) -> list[str]:
    """Link the files but those that the copy ``had`` before, and return the paths of all."""
    linked, total = [], 0
    for path in _files(checkpoint, batch):
        name = path.relative_to(checkpoint)
        target = into / name
        if name.as_posix() not in had:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # A copy that failed may have left it.
            os.link(path, target, follow_symlinks=False)
        total += target.stat().st_size
        linked.append(name.as_posix())
        if len(linked) > max_files or total > max_bytes:
            reason = f"it has more than {max_files:,} files or {max_bytes:,} bytes"
            hint = "raise engine.copy_max_files or engine.copy_max_bytes"
            raise SbonError("checkpoint-too-large", reason, where=str(checkpoint), hint=hint)
    return linked


def _files(checkpoint: Path, batch: int) -> Iterator[Path]:
    """Yield the files from which Spark resumes after the batch. Logs come first: without them the copy is refused at once.

    Spark reads the offsets of the batch before, too. The query's id (``metadata``) stays: the copy gets its own where it starts,
    since a JVM ends a query when another one starts with its id.
    """
    yield from (checkpoint / log / str(batch) for log in ("offsets", "commits"))
    if batch > 0:
        yield checkpoint / "offsets" / str(batch - 1)
        yield checkpoint / "commits" / str(batch - 1)
    for entry in sorted(os.scandir(checkpoint), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False) and entry.name not in ("offsets", "commits"):
            yield from _of_folder(Path(entry.path), batch + 1)


def _of_folder(folder: Path, version: int) -> Iterator[Path]:
    """Yield the files of a folder and of those in it that version ``version`` of the state consists of."""
    versions: dict[str, list[int]] = {}
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            if entry.name != _TABLES:
                yield from _of_folder(Path(entry.path), version)
        elif (match := _VERSIONED.match(entry.name)) is not None:
            versions.setdefault(match[2], []).append(int(match[1]))
        elif not entry.name.startswith("."):
            yield Path(entry.path)
    if versions:
        full, change = ("zip", "changelog") if {"zip", "changelog"} & set(versions) else ("snapshot", "delta")
        yield from _of_store(folder, version, [known for known in versions.get(full, []) if known <= version], full, change)


def _of_store(folder: Path, version: int, known: list[int], full: str, change: str) -> Iterator[Path]:
    base = max(known, default=0)
    if base:
        yield folder / f"{base}.{full}"
        if full == "zip":
            yield from (folder / _TABLES / name for name in _tables(folder / f"{base}.zip"))
    yield from (folder / f"{number}.{change}" for number in range(base + 1, version + 1))


def _tables(snapshot: Path) -> list[str]:
    """Return the tables (``.sst``) that a snapshot of RocksDB consists of, by their names in the checkpoint."""
    try:
        with zipfile.ZipFile(snapshot) as archive:
            listing = archive.getinfo("metadata")
            if listing.file_size > _MAX_LISTING_BYTES:
                raise ValueError(f"{snapshot.name} has a list of tables that is too long")
            _, content = archive.read(listing).decode().split("\n", 1)
        return [str(table["dfsSstFileName"]) for table in json.loads(content)["sstFiles"]]
    except (zipfile.BadZipFile, KeyError, TypeError) as error:
        raise ValueError(f"{snapshot.name} cannot be read") from error


def _described(folder: Path, path: str) -> CopiedFile:
    with (folder / path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return CopiedFile(path=path, bytes=file.tell(), digest=digest.hexdigest())
