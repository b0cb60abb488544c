"""The speed of this machine's processor, relative to a reference (docs/design/measures.md).

A short benchmark: the processor time that bzip2 takes to compress a fixed text. bzip2 is among the integer programs of SPEC
CPU2006. It sorts and branches, and has no vector code that only some processors run. The least time of several runs counts, since
other work on the machine can only make a run slower.
"""

from __future__ import annotations

import bz2
import random
import time
from collections.abc import Callable
from functools import cache

from sbon_node.model.servers import LEAST_SPEED, MOST_SPEED

REFERENCE_S = 0.0066
"""Time of the fixed text on the reference, an Intel Xeon core of 2.8 GHz (Ice Lake) with libbzip2 1.0.8."""
RUNS = 8
TEXT_BYTES = 100_000


@cache
def processor_speed() -> float:
    """Return the speed, measured when it is first asked for."""
    text = _text()
    return speed_of(min(_seconds(lambda: bz2.compress(text)) for _ in range(RUNS)))


def speed_of(took_s: float) -> float:
    """Return the relative speed of a processor that takes ``took_s`` for the fixed text."""
    return min(max(REFERENCE_S / max(took_s, 1e-9), LEAST_SPEED), MOST_SPEED)


def _text() -> bytes:
    rng = random.Random(1)
    words = [f"{rng.getrandbits(24):x}" for _ in range(2000)]
    return " ".join(rng.choice(words) for _ in range(TEXT_BYTES // 4)).encode()[:TEXT_BYTES]


def _seconds(work: Callable[[], object]) -> float:
    """Return the processor time of this thread that ``work`` takes; time in which others run does not count."""
    before = time.thread_time()
    work()
    return time.thread_time() - before
