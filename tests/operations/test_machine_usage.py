"""A node's use of its machine, by process and over time."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from sbon_node.context import ControlSettings
from sbon_node.hosting.machine.machine_resources import Machine, ProcessUsage
from sbon_node.operations.machine_usage import usage_point

MB = 2**20


def test_processor_and_memory_of_a_node_and_its_engine_are_separate() -> None:
    work = "x = bytearray(200 * 2**20)\nprint('there', flush=True)\nwhile True: x[0] ^= 1"
    engine = subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE, text=True)
    try:
        assert engine.stdout is not None
        assert engine.stdout.readline() == "there\n"
        machine = Machine(ControlSettings())
        while psutil.Process(engine.pid).cpu_times().user < 0.1:
            time.sleep(0.02)
        own, below = machine.usage(engine.pid)
        assert below is not None
        assert below.memory_bytes > 200 * MB
        assert below.cpu_s >= 0.1
        this = psutil.Process()
        others = [child for child in this.children(recursive=True) if child.pid != engine.pid]
        assert own.memory_bytes == pytest.approx(sum(one.memory_info().rss for one in (this, *others)), rel=0.2)
        together, nothing = machine.usage(None)
        assert nothing is None
        assert together.memory_bytes > own.memory_bytes + 190 * MB
    finally:
        engine.kill()
        engine.wait()
        engine.stdout.close()
    assert machine.usage(engine.pid)[1] is None


def test_a_point_is_what_was_used_since_the_one_before() -> None:
    before = (ProcessUsage(10.0, 5), ProcessUsage(40.0, 6))
    point = usage_point(before, (ProcessUsage(11.0, 7), ProcessUsage(48.0, 9)), 4.0, 123)
    assert (point.at_ms, point.cores, point.memory_bytes) == (123, 0.25, 7)
    assert (point.engine_cores, point.engine_memory_bytes) == (2.0, 9)


@pytest.mark.parametrize(
    "before, now, cores",
    [
        (None, ProcessUsage(2.0, 1), 0.5),
        (ProcessUsage(90.0, 1), ProcessUsage(2.0, 1), 0.0),
        (ProcessUsage(90.0, 1), None, None),
    ],
    ids=["started", "replaced", "gone"],
)
def test_an_engine_may_come_and_go(before: ProcessUsage | None, now: ProcessUsage | None, cores: float | None) -> None:
    own = ProcessUsage(1.0, 1)
    assert usage_point((own, before), (own, now), 4.0, 0).engine_cores == cores
