"""The inbox: frames received and not yet acknowledged, in memory, bounded by the link's credit.

Frames that are held back do not count against the credit where they can be spilled, so that they do not stop the producer. Those
that do not fit in memory are spilled to disk, and come back in order (docs/design.md, section 7)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
from msgspec.structs import replace

from sbon_node.base.disk import named_errors
from sbon_node.model.frames import Frame
from sbon_node.streams.links.credit import weight
from sbon_node.streams.outbox.signals import Signal
from sbon_node.streams.payload import renamed
from sbon_protocol.errors import BrokenInvariantError, SbonError


class Inbox:
    """Frames ``released + 1`` to ``received`` of one stream; those after ``loaded`` are on disk.

    Frames stay until released, since a batch may run again. ``buffered_bytes`` count against the credit. The columns of frames
    are given the names ``columns``, if there are any, when they are taken.
    """

    def __init__(
        self,
        stream: str,
        *,
        capacity_bytes: int,
        released: int = 0,
        news: Signal | None = None,
        spill: Spill | None = None,
        columns: tuple[str, ...] = (),
    ) -> None:
        self.stream, self._columns = stream, columns
        self.news = news or Signal()
        self.capacity_bytes = capacity_bytes
        self.received = self.loaded = self.released = released
        self.buffered_bytes = self.memory_bytes = 0
        self.spill = spill
        self._holding = False
        self._returned = released
        """The credit of frames up to this number has been returned, or was never taken."""
        self._began = released
        self._frames: dict[int, Frame] = {}

    @property
    def room_bytes(self) -> int:
        return self.capacity_bytes - self.buffered_bytes

    @property
    def spill_is_full(self) -> bool:
        return self.spill is not None and self.spill.is_full

    @property
    def newest(self) -> Frame | None:
        """The last frame received, while it is in memory."""
        return self._frames.get(self.received)

    @property
    def waiting(self) -> tuple[int, int]:
        """The frames that were received and not released, and their bytes as credits count, those on disk included."""
        return self.received - self.released, self.memory_bytes + (self.spill.bytes if self.spill is not None else 0)

    def begin_at(self, first: int) -> None:
        """Set the stream's earliest frame to ``first``: earlier frames will never come."""
        if self.received or self._frames:
            raise BrokenInvariantError(f"{self.stream} began at {self.received + 1} and cannot begin again at {first}")
        self.received = self.loaded = self.released = self._returned = self._began = first - 1

    def add(self, frame: Frame) -> int:
        """Store the next frame and return the bytes of credit to give back.

        The link has checked that the frame is the next and has credit. Raises ``disk-full`` or ``disk-error``.
        """
        if frame.number != self.received + 1:
            raise BrokenInvariantError(f"frame {frame.number} of {self.stream} follows {self.received}")
        size = weight(frame.payload)
        bound = self.capacity_bytes // 2 if self._holding else self.capacity_bytes
        if self.spill is not None and (self.spill.frames or self.memory_bytes + size > bound):
            self.spill.push(frame)
        else:
            self._keep(frame)
        self.received = frame.number
        self.buffered_bytes += size
        self._load()
        self.news.notify()
        return self._give_back()

    def hold(self, holding: bool) -> int:
        """Set whether the next frame must wait for other inputs; return the bytes of credit to give back."""
        self._holding = holding
        return self._give_back()

    def release(self, number: int) -> int:
        """Drop all frames up to ``number``; return the bytes of credit to give back."""
        freed = 0
        while self.released < min(number, self.received):
            self.released += 1
            self._load_upto(self.released)
            size = weight(self._frames.pop(self.released).payload)
            self.memory_bytes -= size
            freed += size if self.released > self._returned else 0
        self.buffered_bytes -= freed
        if self._load():
            self.news.notify()
        return freed + self._give_back()

    def at(self, number: int) -> Frame | None:
        """Return the frame if it is in memory."""
        return self._frames.get(number)

    def frames(self, after: int, upto: int) -> list[Frame]:
        """Return frames (after, upto], which have been received. Raises ``not-retained`` where some are released."""
        if after < self.released and not (after == 0 and self.released == self._began):
            message = f"frames up to {self.released} were acknowledged, {after + 1} is asked for"
            raise SbonError("not-retained", message, where=self.stream)
        self._load_upto(upto)
        frames = [self._frames[number] for number in range(max(after, self.released) + 1, upto + 1)]
        return [replace(frame, payload=renamed(frame.payload, self._columns)) for frame in frames] if self._columns else frames

    def _keep(self, frame: Frame) -> None:
        self._frames[frame.number] = frame
        self.memory_bytes += weight(frame.payload)
        self.loaded = frame.number

    def _load(self) -> bool:
        """Load frames from disk while memory has room; return whether there were any."""
        before = self.loaded
        while self.spill is not None and (head := self.spill.head) is not None:
            if self._frames and self.memory_bytes + weight(head.payload) > self.capacity_bytes // 2:
                break
            self._keep(self.spill.pop())
        return self.loaded > before

    def _load_upto(self, number: int) -> None:
        while self.spill is not None and self.loaded < min(number, self.received):
            self._keep(self.spill.pop())

    def _give_back(self) -> int:
        if not self._holding or self.spill is None or self.spill.is_full:
            return 0
        freed, self.buffered_bytes, self._returned = self.buffered_bytes, 0, self.received
        return freed


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
