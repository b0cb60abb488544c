"""Frames held back, on disk: a queue that takes no memory (docs/design.md, section 7).

It does not survive the process: files of an earlier process are deleted, and their frames sent again.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from sbon_node.base.disk import named_errors
from sbon_node.model.frames import Frame
from sbon_node.streams.links.credit import weight

SEGMENT_BYTES = 16 * 1024 * 1024
"""Size of a file. A file is deleted once all of it is read and another begun; the last one is overwritten."""
KEPT_BYTES = 1024 * 1024
"""A last file longer than this is emptied once all of it is read."""
_LENGTH_BYTES = 8


class Spill:
    """First-in, first-out queue in files of ``folder``.

    ``max_bytes`` is the intended limit; a link's credit more is the worst case. Any call may raise :class:`SbonError`
    ``disk-full`` or ``disk-error`` and has changed nothing then.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.frames = self.bytes = 0
        self.total_frames = self.total_bytes = 0
        self._folder = folder
        self._head: Frame | None = None
        self._segments: dict[int, int] = {}
        """Bytes by segment, the oldest first; a record that a full disk has cut short does not count and is overwritten."""
        self._read_at = 0
        self.clear()

    @property
    def is_full(self) -> bool:
        return self.bytes > self.max_bytes

    @property
    def head(self) -> Frame | None:
        """The next frame to come out."""
        if self._head is None and self.frames:
            self._head = self._read()
        return self._head

    def push(self, frame: Frame) -> None:
        record = msgspec.msgpack.encode(frame)
        with named_errors(self._folder):
            self._write(len(record).to_bytes(_LENGTH_BYTES) + record)
        self.frames += 1
        self.total_frames += 1
        self.bytes += weight(frame.payload)
        self.total_bytes += weight(frame.payload)

    def pop(self) -> Frame:
        """Remove and return the first frame; raises :class:`IndexError` if the queue is empty."""
        frame = self.head
        if frame is None:
            raise IndexError("nothing is spilled")
        self._head = None
        self.frames -= 1
        self.bytes -= weight(frame.payload)
        if not self.frames:
            number = max(self._segments)
            if self._segments[number] > KEPT_BYTES:
                with named_errors(self._folder):
                    os.truncate(self._path(number), 0)
            self._segments = {number: 0}
            self._read_at = 0
        return frame

    def clear(self) -> None:
        """Delete all frames and all files in the folder, those of earlier processes included."""
        with named_errors(self._folder):
            if self._folder.exists():
                shutil.rmtree(self._folder)
        self._segments.clear()
        self._head = None
        self._read_at = self.frames = self.bytes = 0

    def _write(self, record: bytes) -> None:
        number = max(self._segments, default=0)
        if not self._segments or self._segments[number] >= SEGMENT_BYTES:
            number += 1
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path(number).touch()
            self._segments[number] = 0
        with open(self._path(number), "r+b", buffering=0) as file:
            file.seek(self._segments[number])
            left = memoryview(record)
            while left:
                left = left[file.write(left) :]
        self._segments[number] += len(record)

    def _read(self) -> Frame:
        with named_errors(self._folder):
            number = min(self._segments)
            if self._read_at >= self._segments[number]:
                self._path(number).unlink()
                del self._segments[number]
                number, self._read_at = min(self._segments), 0
            with open(self._path(number), "rb") as file:
                file.seek(self._read_at)
                length = int.from_bytes(file.read(_LENGTH_BYTES))
                record = file.read(length)
        self._read_at += _LENGTH_BYTES + length
        return msgspec.msgpack.decode(record, type=Frame)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.frames"
