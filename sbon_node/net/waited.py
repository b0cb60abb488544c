"""How long a datagram lay in its socket before it was read: round-trip times must not count what this process was late for.

Linux stamps each datagram as it arrives and tells the stamp of the last one that was read (SIOCGSTAMP, see socket(7)). It is of
the wall clock, so the difference to now is taken at once; one that a step of the clock has made absurd counts as none.
"""

from __future__ import annotations

import fcntl
import struct
import time
from typing import Any

_SIOCGSTAMP = 0x8906
_TIMEVAL = struct.Struct("@ll")
MAX_WAITED_S = 10.0
"""Nothing lies that long in the socket of a process that lives; more is a step of the clock."""


class WaitedInSocket:
    """Of one UDP socket: call it right after a datagram has been read."""

    def __init__(self, sock: Any) -> None:
        self._fd = sock.fileno()
        self._told = True
        self()  # the first question has the system begin to stamp

    def __call__(self) -> float:
        """Seconds; 0 where the system does not tell."""
        if not self._told:
            return 0.0
        try:
            seconds, microseconds = _TIMEVAL.unpack(fcntl.ioctl(self._fd, _SIOCGSTAMP, bytes(_TIMEVAL.size)))
        except FileNotFoundError:
            return 0.0  # nothing has been read since it began
        except OSError:
            self._told = False
            return 0.0
        waited_s: float = time.time() - (seconds + microseconds / 1e6)
        return waited_s if 0.0 <= waited_s <= MAX_WAITED_S else 0.0
