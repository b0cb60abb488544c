"""The inbox: frames a subscriber has received and not yet acknowledged, in memory, bounded by the link's credit."""

from __future__ import annotations

from sbon_node.errors import BrokenInvariantError, SbonError
from sbon_node.streams.credit import weight
from sbon_node.streams.frame import Frame
from sbon_node.streams.signals import Signal


class Inbox:
    """Frames ``released + 1`` to ``received`` of one stream. They stay until released, since a batch may be run again."""

    def __init__(self, stream: str, *, capacity_bytes: int, released: int = 0, news: Signal | None = None) -> None:
        self.stream = stream
        self.news = news or Signal()
        self.capacity_bytes = capacity_bytes
        self.received = released
        self.released = released
        self.held_bytes = 0
        self._began = released
        self._frames: dict[int, Frame] = {}

    @property
    def room_bytes(self) -> int:
        return self.capacity_bytes - self.held_bytes

    @property
    def newest(self) -> Frame | None:
        """The last frame received, while it is held."""
        return self._frames.get(self.received)

    def begin(self, first: int) -> None:
        """The stream's earliest frame is ``first``: what is before it will never come."""
        if self.received or self._frames:
            raise BrokenInvariantError(f"{self.stream} began at {self.received + 1} and cannot begin again at {first}")
        self.received = self.released = self._began = first - 1

    def add(self, frame: Frame) -> None:
        """Takes the next frame; the link has checked that it is the next, and that there is credit for it."""
        if frame.number != self.received + 1:
            raise BrokenInvariantError(f"frame {frame.number} of {self.stream} follows {self.received}")
        self._frames[frame.number] = frame
        self.received = frame.number
        self.held_bytes += weight(frame.payload)
        self.news.notify()

    def release(self, number: int) -> int:
        """Lets go of everything up to ``number``; returns the bytes that gave back."""
        given = 0
        while self.released < min(number, self.received):
            self.released += 1
            given += weight(self._frames.pop(self.released).payload)
        self.held_bytes -= given
        return given

    def span(self, after: int, max_bytes: int, max_frames: int) -> Frame | None:
        """The last frame after number ``after`` that a batch of so many bytes and frames may go up to: the next one at least,
        or ``None`` where there is none."""
        last = None
        first = max(after, self.released) + 1
        for number in range(first, min(self.received, first + max_frames - 1) + 1):
            frame = self._frames[number]
            max_bytes -= weight(frame.payload)
            if last is not None and max_bytes < 0:
                break
            last = frame
        return last

    def frames(self, after: int, upto: int) -> list[Frame]:
        """Frames (after, upto], all of which have been received. Raises ``not-retained`` where some are released."""
        if after < self.released and not (after == 0 and self.released == self._began):
            raise SbonError(
                "not-retained", f"frames up to {self.released} were acknowledged, {after + 1} is asked for", where=self.stream
            )
        return [self._frames[number] for number in range(max(after, self.released) + 1, upto + 1)]
