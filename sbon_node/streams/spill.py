"""Frames that are held back, on disk: a queue that takes no memory (docs/design.md, section 7).

It survives nothing: whatever an earlier process left is thrown away, and sent again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from sbon_node.disk import named_errors
from sbon_node.streams.credit import weight
from sbon_node.streams.frame import Frame

SEGMENT_BYTES = 16 * 1024 * 1024
"""A file is deleted once all of it has been read and another begun; the last one is written anew."""
_LENGTH_BYTES = 8


class Spill:
    """First in, first out, in files of ``folder``; ``max_bytes`` is what it is meant to hold, a link's credit more at the worst.

    Any call raises :class:`SbonError` ``disk-full`` or ``disk-error`` and has changed nothing then.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.frames = self.bytes = 0
        self.total_frames = self.total_bytes = 0
        self._folder = folder
        self._head: Frame | None = None
        self._segments: dict[int, int] = {}
        """Bytes by segment, the oldest first; what a full disk has cut short is not among them, and written over."""
        self._read_at = 0
        self.clear()

    @property
    def is_full(self) -> bool:
        return self.bytes > self.max_bytes

    @property
    def head(self) -> Frame | None:
        """The frame that comes out next."""
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
        """Raises :class:`IndexError` where it is empty."""
        frame = self.head
        if frame is None:
            raise IndexError("nothing is spilled")
        self._head = None
        self.frames -= 1
        self.bytes -= weight(frame.payload)
        if not self.frames:
            self._segments = {max(self._segments): 0}
            self._read_at = 0
        return frame

    def clear(self) -> None:
        """Forgets all, with the files, and what others have left in the folder."""
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
