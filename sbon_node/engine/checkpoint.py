"""Spark's two checkpoint logs: ``offsets/b`` when batch b is planned, ``commits/b`` when it is done."""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from sbon_node.base.disk import replace, sync_path
from sbon_node.engine.alignment import Cut, cut_of
from sbon_node.model.frames import InputOffset

_Version = tuple[int, int] | frozenset[tuple[str, int]]
"""A file's inode and modification time (nanoseconds); a folder's names and their inodes."""


class LoggedOffset(InputOffset, frozen=True, kw_only=True):
    """An offset as our reader hands it to Spark, which logs the inputs in the order of its own plan."""

    input: int = 0


class BatchLog:
    """The logs of one checkpoint folder. A file appears whole, by renaming; an existing file is replaced.

    With ``fsync``, :meth:`sync` makes the whole checkpoint survive the loss of power; otherwise it survives the death of
    processes only.
    """

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        self._folder, self._fsync = folder, fsync
        self._synced: dict[Path, _Version] = {}

    def offsets(self) -> list[int]:
        return self._batches("offsets")

    def commits(self) -> list[int]:
        return self._batches("commits")

    def read_offsets(self, batch: int) -> tuple[InputOffset, ...]:
        """Return one offset per input; raises ``ValueError`` for an unreadable file."""
        version, _, *lines = (self._folder / "offsets" / str(batch)).read_text().rstrip("\n").split("\n")
        if not version.startswith("v") or not lines:
            raise ValueError(f"offsets/{batch} cannot be read")
        logged = sorted((msgspec.json.decode(line, type=LoggedOffset) for line in lines), key=lambda offset: offset.input)
        return tuple(
            InputOffset(frame=o.frame, watermark_ms=o.watermark_ms, ended=o.ended, incarnation=o.incarnation) for o in logged
        )

    def read_watermark(self, batch: int) -> int:
        """Return the watermark (milliseconds) the batch runs with; 0 before there is any. Raises ``ValueError``."""
        _, metadata, *_ = (self._folder / "offsets" / str(batch)).read_text().split("\n", 2)
        return int(json.loads(metadata)["batchWatermarkMs"])

    def read_setting(self, batch: int, name: str) -> str:
        """Return a setting of Spark that the batch is bound to; empty if it names none. Raises ``ValueError``."""
        _, metadata, *_ = (self._folder / "offsets" / str(batch)).read_text().split("\n", 2)
        return str(json.loads(metadata).get("conf", {}).get(name, ""))

    def is_settled(self) -> bool:
        """Return whether every planned batch is committed."""
        return self.offsets()[-1:] == self.commits()[-1:]

    def sync(self) -> None:
        """Sync all files of the checkpoint that were not synced before, operator state included.

        Call before a batch becomes visible; raises ``OSError``.
        """
        if not self._fsync:
            return
        above = (self._folder.parent.parent, self._folder.parent)  # The engine or the node has created these.
        versions = dict([*((folder, frozenset()) for folder in above), *_look(self._folder)])
        for path in sorted(path for path, version in versions.items() if self._synced.get(path) != version):
            _sync(path)
        self._synced = versions

    def is_committed(self, batch: int) -> bool:
        try:
            self.read_next_watermark(batch)
        except (ValueError, OSError):
            return False
        return True

    def read_next_watermark(self, batch: int) -> int:
        """Return the watermark (milliseconds) of a batch after the committed ``batch``. Raises ``ValueError``."""
        try:
            _, metadata = (self._folder / "commits" / str(batch)).read_text().split("\n", 1)
            return int(json.loads(metadata)["nextBatchWatermarkMs"])
        except (ValueError, KeyError) as error:
            raise ValueError(f"commits/{batch} cannot be read") from error

    def read_cut(self, batch: int) -> Cut:
        """Return the position after the committed ``batch``. Raises ``ValueError`` or ``OSError``."""
        return cut_of(self.read_offsets(batch), self.read_watermark(batch), self.read_next_watermark(batch))

    def write_offsets(self, batch: int, offsets: tuple[InputOffset, ...], watermark_ms: int = 0) -> None:
        lines = [msgspec.json.encode(offset).decode() for offset in offsets]
        self._write("offsets", batch, ["v1", json.dumps({"batchWatermarkMs": watermark_ms}), *lines])

    def write_commit(self, batch: int, next_watermark_ms: int = 0) -> None:
        self._write("commits", batch, ["v1", json.dumps({"nextBatchWatermarkMs": next_watermark_ms})])

    def purge(self, before: int) -> None:
        """Delete what is logged of batches before ``before``, as Spark does after each commit."""
        for log in ("offsets", "commits"):
            for batch in self._batches(log):
                if batch < before:
                    self._remove(log, batch)

    def repair(self, has_batch: Callable[[int], bool], visible: int) -> int | None:
        """Repair the checkpoint after a kill, a full disk or a loss of power; return the newest batch that stays committed.

        ``has_batch`` says whether the outbox holds a batch's output, and ``visible`` is its newest visible batch. A commit
        counts if its plan is readable and its output exists. Everything later is removed: with ``offsets/b+1`` left in place
        Spark would take b for done and silently skip it. With ``fsync`` a commit that is not visible yet does not count either,
        since the state behind it may not be on the disk.

        Spark starts its first batch in an empty folder only: where nothing is committed, nothing stays.
        """
        for path in list(self._folder.rglob(".*.tmp")):  # Spark's writes leave many empty files on a full disk.
            path.unlink(missing_ok=True)
        trusted = [batch for batch in self.commits() if not self._fsync or batch <= visible]
        committed = next((b for b in reversed(trusted) if self.is_committed(b) and self._is_planned(b) and has_batch(b)), None)
        if committed is None and visible < 0:
            self._clear()
            return None
        following = 0 if committed is None else committed + 1
        for batch in self.commits():
            if batch >= following:
                self._remove("commits", batch)
        for batch in self.offsets():
            if batch > following or (batch == following and not self._is_planned(batch)):
                self._remove("offsets", batch)
        if committed is not None:
            self._mend_metadata()
        if following > visible and following in self.offsets():
            self._tell_again(following)
        return committed

    def _tell_again(self, batch: int) -> None:
        """Give every input in a batch that will run again a new incarnation, and so a marker.

        A restarted engine forgets the watermarks of its inputs, and takes an input without a marker for one at 1970.
        """
        version, metadata, *lines = (self._folder / "offsets" / str(batch)).read_text().rstrip("\n").split("\n")
        planned = [msgspec.json.decode(line, type=LoggedOffset) for line in lines]
        latest = 1 + max(offset.incarnation for offset in planned)
        again = [msgspec.to_builtins(msgspec.structs.replace(offset, incarnation=latest)) for offset in planned]
        # Exactly as the engine writes them, since the engine compares the texts.
        self._write("offsets", batch, [version, metadata, *map(json.dumps, again)])

    def _is_planned(self, batch: int) -> bool:
        try:
            self.read_offsets(batch)
            self.read_watermark(batch)
        except (ValueError, KeyError, OSError):
            return False
        return True

    def _clear(self) -> None:
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _mend_metadata(self) -> None:
        """Replace unreadable metadata: Spark starts no query without an id; nothing else depends on the id."""
        metadata = self._folder / "metadata"
        try:
            if uuid.UUID(json.loads(metadata.read_text())["id"]):
                return
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            _checksum(metadata).unlink(missing_ok=True)
            replace(metadata, json.dumps({"id": str(uuid.uuid4())}).encode())

    def _remove(self, log: str, batch: int) -> None:
        (self._folder / log / str(batch)).unlink(missing_ok=True)
        _checksum(self._folder / log / str(batch)).unlink(missing_ok=True)

    def _batches(self, log: str) -> list[int]:
        folder = self._folder / log
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit()) if folder.is_dir() else []

    def _write(self, log: str, batch: int, lines: list[str]) -> None:
        target = self._folder / log / str(batch)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{batch}.tmp")
        scratch.write_text("\n".join(lines))
        _checksum(target).unlink(missing_ok=True)
        scratch.rename(target)


def _checksum(path: Path) -> Path:
    """Return the file of checksums that Hadoop writes beside a file of an operator with its state in RocksDB."""
    return path.with_name(f".{path.name}.crc")


def _look(folder: Path) -> Iterator[tuple[Path, _Version]]:
    """Yield the versions of files and folders.

    A file never changes once it has its name. A folder's time is not enough: two names may come within one tick of it.
    """
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:  # Spark has renamed or removed it meanwhile.
        return
    yield folder, frozenset((entry.name, entry.inode()) for entry in entries)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _look(Path(entry.path))
            continue
        try:
            yield Path(entry.path), (entry.inode(), entry.stat().st_mtime_ns)
        except FileNotFoundError:
            continue


def _sync(path: Path) -> None:
    with suppress(FileNotFoundError):  # Spark has renamed or removed it meanwhile.
        sync_path(path)
