"""Credit: how many bytes of a stream may be under way to, or held by, one subscriber (docs/design.md, section 8)."""

from __future__ import annotations

FRAME_OVERHEAD_BYTES = 64
"""What a frame costs beside its payload, so that frames without rows are bounded too."""


def weight(payload: bytes) -> int:
    """Bytes a frame counts for in credits, quotas and spans; the same at both ends of a link."""
    return len(payload) + FRAME_OVERHEAD_BYTES


class Credit:
    """The sender's side: ``initial`` bytes at first, and what the subscriber has added since."""

    def __init__(self, initial: int) -> None:
        self._initial = initial
        self._returned = 0
        self._spent = 0

    @property
    def outstanding(self) -> int:
        """Bytes sent that the subscriber still holds."""
        return self._spent - self._returned

    def allows(self, size: int) -> bool:
        """Whether a frame of ``size`` bytes may go now. Subscribers hold room for the largest frame at least."""
        return self.outstanding + size <= self._initial

    def spend(self, size: int) -> None:
        self._spent += size

    def returned(self, total: int) -> None:
        """``total`` bytes were given back since the subscription began; an older report changes nothing."""
        self._returned = max(self._returned, total)
