"""The frames of a shared connection that some of its subscriptions have yet to get (SPEC.md, section 6).

Both ends keep the same window: it changes with the host's messages alone, in their order. So the host knows which frames the
reader still has, and sends these again as a number.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sbon_protocol.errors import ProtocolError
from sbon_protocol.messages import Data


@dataclass(slots=True)
class _Place:
    """The last frame ``sent`` to a subscription of a stream of this ``lineage``."""

    lineage: int
    sent: int
    subscriber: str


@dataclass(slots=True)
class _Kept:
    """A frame for which some subscriptions are ``waiting``; ``subscribers`` have it."""

    data: Data
    size: int
    waiting: int
    subscribers: list[str] = field(default_factory=list)


class Window:
    """Keeps at most ``max_frames`` frames of ``max_bytes``, the newest; the host keeps them without their payload."""

    def __init__(self, max_bytes: int, max_frames: int) -> None:
        self._max_bytes, self._max_frames = max_bytes, max_frames
        self._places: dict[int, _Place] = {}
        self._kept: dict[tuple[int, int], _Kept] = {}
        """Frames by lineage and number, the oldest first."""
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def open(self, subscription: int, lineage: int, sent: int, subscriber: str = "") -> None:
        """A subscription begins after frame ``sent``. Raises :class:`ProtocolError` ``unexpected`` if it is there already."""
        if subscription in self._places:
            raise ProtocolError("unexpected", f"subscription {subscription} was accepted twice")
        self._places[subscription] = _Place(lineage, sent, subscriber)
        for (of, number), kept in self._kept.items():
            kept.waiting += of == lineage and number > sent

    def close(self, subscription: int) -> None:
        """A subscription ends; ignore one that has not begun."""
        place = self._places.pop(subscription, None)
        if place is not None:
            for of, number in [key for key in self._kept if key[0] == place.lineage and key[1] > place.sent]:
                self._get(of, number)

    def find(self, subscription: int, number: int) -> Data | None:
        """Return the frame if it is kept for the subscription."""
        kept = self._find(subscription, number)
        return None if kept is None else kept.data

    def subscribers(self, subscription: int, number: int) -> tuple[str, ...]:
        """Return the subscribers that have the frame already, if it is kept for the subscription."""
        kept = self._find(subscription, number)
        return () if kept is None else tuple(kept.subscribers)

    def sent(self, subscription: int, data: Data, size: int) -> None:
        """A subscription gets its next frame, of weight ``size``. Raises :class:`ProtocolError` ``gap`` for another one."""
        place = self._places.get(subscription)
        if place is None or data.number != place.sent + 1:
            raise ProtocolError("gap", f"frame {data.number} came for subscription {subscription}")
        place.sent = data.number
        key = (place.lineage, data.number)
        if (kept := self._kept.get(key)) is None:
            waiting = sum(one.lineage == place.lineage and one.sent < data.number for one in self._places.values())
            if waiting:
                self._kept[key] = _Kept(data, size, waiting, [place.subscriber])
                self.bytes += size
                self._evict()
        else:
            kept.subscribers.append(place.subscriber)
            self._get(*key)

    def _find(self, subscription: int, number: int) -> _Kept | None:
        place = self._places.get(subscription)
        return None if place is None else self._kept.get((place.lineage, number))

    def _get(self, lineage: int, number: int) -> None:
        """One subscription less waits for the frame."""
        kept = self._kept[lineage, number]
        kept.waiting -= 1
        if not kept.waiting:
            self._forget((lineage, number))

    def _evict(self) -> None:
        while self.bytes > self._max_bytes or len(self._kept) > self._max_frames:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: tuple[int, int]) -> None:
        self.bytes -= self._kept.pop(key).size
