"""A checkpoint's two logs as Spark writes them: ``offsets/b`` when batch b is planned, ``commits/b`` when it is done."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from sbon_node.streams.frame import InputOffset

_Version = tuple[Path, int, int]
"""A file, the inode behind its name, and when that was changed (nanoseconds)."""


class _Logged(InputOffset, frozen=True, kw_only=True):
    """An offset as our reader hands it to Spark, which logs the inputs in the order of its own plan."""

    input: int = 0


class BatchLog:
    """The logs of one checkpoint folder. A file appears whole, by renaming; one that is there already is replaced.

    With ``fsync``, :meth:`sync` makes the whole checkpoint outlast the loss of power; else it outlasts every process only.
    """

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        self._folder, self._fsync = folder, fsync
        self._synced: set[_Version] = set()

    def offsets(self) -> list[int]:
        return self._batches("offsets")

    def commits(self) -> list[int]:
        return self._batches("commits")

    def read_offsets(self, batch: int) -> tuple[InputOffset, ...]:
        """One for each input; raises ``ValueError`` for a file that cannot be read."""
        version, _, *lines = (self._folder / "offsets" / str(batch)).read_text().rstrip("\n").split("\n")
        if not version.startswith("v") or not lines:
            raise ValueError(f"offsets/{batch} cannot be read")
        logged = sorted((msgspec.json.decode(line, type=_Logged) for line in lines), key=lambda offset: offset.input)
        return tuple(
            InputOffset(frame=o.frame, watermark_ms=o.watermark_ms, ended=o.ended, incarnation=o.incarnation) for o in logged
        )

    def read_watermark(self, batch: int) -> int:
        """The watermark (milliseconds) the batch runs with; 0 before there is any. Raises ``ValueError``."""
        _, metadata, *_ = (self._folder / "offsets" / str(batch)).read_text().split("\n", 2)
        return int(json.loads(metadata)["batchWatermarkMs"])

    def check_commit(self, batch: int) -> None:
        """Raises ``ValueError`` for a file that cannot be read; Spark does not start on one."""
        if not (self._folder / "commits" / str(batch)).read_text().startswith("v"):
            raise ValueError(f"commits/{batch} cannot be read")

    def is_settled(self) -> bool:
        """Whether every batch that was planned is committed."""
        return self.offsets()[-1:] == self.commits()[-1:]

    def sync(self) -> None:
        """Syncs what is there of the checkpoint, operator state and all, and was not synced before. Call before a batch becomes
        visible; raises ``OSError``."""
        if not self._fsync:
            return
        found = set(self._versions())
        new = found - self._synced
        for path in sorted({version[0] for version in new}):
            _sync(path)
        self._synced = found

    def _versions(self) -> Iterator[_Version]:
        """A file never changes once it bears its name, and a folder changes with what it holds."""
        for path in (self._folder, *self._folder.rglob("*")):
            try:
                status = path.stat()
            except FileNotFoundError:  # Spark has renamed or removed it meanwhile
                continue
            yield path, status.st_ino, status.st_mtime_ns

    def is_committed(self, batch: int) -> bool:
        try:
            self.check_commit(batch)
        except (ValueError, OSError):
            return False
        return True

    def read_next_watermark(self, batch: int) -> int:
        """The watermark (milliseconds) that a batch after ``batch``, which is committed, runs with. Raises ``ValueError``."""
        _, metadata = (self._folder / "commits" / str(batch)).read_text().split("\n", 1)
        return int(json.loads(metadata)["nextBatchWatermarkMs"])

    def write_offsets(self, batch: int, offsets: tuple[InputOffset, ...], watermark_ms: int = 0) -> None:
        lines = [msgspec.json.encode(offset).decode() for offset in offsets]
        self._write("offsets", batch, ["v1", json.dumps({"batchWatermarkMs": watermark_ms}), *lines])

    def write_commit(self, batch: int, next_watermark_ms: int = 0) -> None:
        self._write("commits", batch, ["v1", json.dumps({"nextBatchWatermarkMs": next_watermark_ms})])

    def repair(self, has_batch: Callable[[int], bool]) -> int | None:
        """Removes an unreadable tail, and a newest commit whose output is not in the outbox, with all that was planned after;
        returns the newest commit that is left.

        With ``offsets/b+1`` left in place Spark would take b for done and silently skip it.
        """
        for batch in reversed(self.offsets()):
            try:
                self.read_offsets(batch)
                break
            except ValueError:
                self._remove("offsets", batch)
        for batch in reversed(self.commits()):
            if self.is_committed(batch) and has_batch(batch):
                return batch
            self._remove("commits", batch)
            for planned in self.offsets():
                if planned > batch:
                    self._remove("offsets", planned)
        return None

    def _remove(self, log: str, batch: int) -> None:
        (self._folder / log / str(batch)).unlink(missing_ok=True)

    def _batches(self, log: str) -> list[int]:
        folder = self._folder / log
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []

    def _write(self, log: str, batch: int, lines: list[str]) -> None:
        target = self._folder / log / str(batch)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{batch}.tmp")
        scratch.write_text("\n".join(lines))
        scratch.rename(target)


def _sync(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
