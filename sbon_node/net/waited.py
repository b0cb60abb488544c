"""Time a datagram spent in its socket before it was read; it must not count as round-trip time.

Linux stamps each datagram as it arrives and returns the stamp of the last one read (SIOCGSTAMP, see socket(7)). The stamp is
wall-clock time, so the difference to now is taken at once; a difference that a clock step has made absurd counts as 0.
"""

from __future__ import annotations

import fcntl
import struct
import time
from typing import Any

_SIOCGSTAMP = 0x8906
_TIMEVAL = struct.Struct("@ll")
MAX_WAITED_S = 10.0
"""No datagram waits that long in the socket of a live process; more is a step of the clock."""


class WaitedInSocket:
    """The waiting time at one UDP socket: call right after reading a datagram."""

    def __init__(self, sock: Any) -> None:
        self._fd = sock.fileno()
        self._told = True
        self()  # The first call makes the system begin to stamp.

    def __call__(self) -> float:
        """Return seconds; 0 where the system gives no stamp."""
        if not self._told:
            return 0.0
        try:
            seconds, microseconds = _TIMEVAL.unpack(fcntl.ioctl(self._fd, _SIOCGSTAMP, bytes(_TIMEVAL.size)))
        except FileNotFoundError:
            return 0.0  # Nothing has been read since stamping began.
        except OSError:
            self._told = False
            return 0.0
        waited_s: float = time.time() - (seconds + microseconds / 1e6)
        return waited_s if 0.0 <= waited_s <= MAX_WAITED_S else 0.0
