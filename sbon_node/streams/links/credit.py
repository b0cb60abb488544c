"""Credit: the bytes of a stream that one subscriber may hold or await (docs/design.md, section 8)."""

FRAME_OVERHEAD_BYTES = 64
"""Cost of a frame beside its payload, so that frames without rows are bounded too."""


def weight(payload: bytes) -> int:
    """Return the bytes a frame counts for in credits, quotas and spans; the same at both ends of a link."""
    return len(payload) + FRAME_OVERHEAD_BYTES


class Credit:
    """The sender's side: ``initial`` bytes, plus the bytes the subscriber has returned since."""

    def __init__(self, initial: int) -> None:
        self._initial = initial
        self._returned = 0
        self._spent = 0

    @property
    def outstanding(self) -> int:
        """Bytes sent that the subscriber still holds."""
        return self._spent - self._returned

    def allows(self, size: int) -> bool:
        """Return whether a frame of ``size`` bytes may be sent now. Subscribers have room for the largest frame at least."""
        return self.outstanding + size <= self._initial

    def spend(self, size: int) -> None:
        self._spent += size

    def returned(self, total: int) -> None:
        """Note that ``total`` bytes were returned since the subscription began; ignore an older report."""
        self._returned = max(self._returned, total)
