"""Record what each test costs: ``pytest --record`` stores it in ``docs/results/tests.json``.

The seconds of set-up, call and tear-down; ``cpu_s``, the processor time of the test's process and of all that it started;
``waited_s``, the time that the test's own process slept or waited for descriptors, and ``slept_s`` the part of it that was slept
or waited out without one; ``starts``, the local clusters, random schedules and processes that were started, by kind and by the
fixture in which they appeared. Processes are found by polling ``/proc`` for the mark of :mod:`tests.guardian`, so one that lives
for less than ``POLL_S`` is missed.
"""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sbon.local.cluster import LocalCluster
from sbon_lab.simulation import schedule
from tests.guardian import VARIABLE
from tests.running import stored
from tests.running.speed import Speed

POLL_S = 0.25
RECORDED = ("cpu_s", "waited_s", "slept_s")
PHASES = {"setup": "set_up_s", "call": "call_s", "teardown": "tear_down_s"}
TICKS = os.sysconf("SC_CLK_TCK")
KINDS = (
    ("zygote", "sbon_node.engine.spark.zygote"),
    ("python worker", "pyspark.daemon"),
    ("python worker", "pyspark.worker"),
    ("engine", "sbon_node.engine"),
    ("planner", "sbon_node.planning.process"),
    ("daemon", "sbon_node"),
    ("daemon", "node"),
    ("postgres", "postgres"),
    ("mqtt broker", "mosquitto"),
    ("command", "sbon"),
    ("pytest", "pytest"),
    ("python", "python"),
)
"""Kinds of processes that are neither JVM nor browser, by a word of their command line; the first that fits."""


class Processes:
    """The processes of this run: their processor time, and those not counted yet."""

    def __init__(self) -> None:
        self._mark = f"{VARIABLE}={os.environ[VARIABLE]}".encode()
        self._seen: dict[int, bool] = {}
        self._ticks: dict[int, int] = {}
        self._new: set[int] = set()

    def poll(self) -> tuple[float, list[str]]:
        """Return the seconds of processor time since the last poll, and the kinds of the processes that were new then."""
        present = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        for pid in self._seen.keys() - present:
            del self._seen[pid]
            self._ticks.pop(pid, None)
        kinds = [kind for pid in self._new & present if (kind := _kind(pid))]
        self._new = set()
        ticks = 0
        for pid in present:
            if pid not in self._seen:
                self._seen[pid] = pid != os.getpid() and self._marked(pid)
                if self._seen[pid]:
                    self._new.add(pid)
            if self._seen[pid]:
                used = _ticks(pid)
                ticks += max(0, used - self._ticks.get(pid, 0))
                self._ticks[pid] = used
        return ticks / TICKS, kinds

    def _marked(self, pid: int) -> bool:
        try:
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def _kind(pid: int) -> str | None:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    if not command[0]:
        return None
    words = [Path(command[0]).name, *command[1:]]
    if words[0] == "java":
        return "jvm"
    text = " ".join(words)
    if "chrom" in words[0]:
        return None if "--type=" in text or "crashpad" in text else "browser"  # one browser has many processes
    return next((kind for kind, word in KINDS if word in text), words[0])


class Waits:
    """The seconds that this process sleeps, or waits for descriptors."""

    def __init__(self) -> None:
        self.waited_s = self.slept_s = 0.0
        time.sleep = self._timed(time.sleep)
        selectors.EpollSelector.select = self._timed(selectors.EpollSelector.select)  # type: ignore[method-assign]

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        main = threading.main_thread()

        def timed(*arguments: Any, **named: Any) -> Any:
            begin, ready = time.perf_counter(), None
            try:
                ready = function(*arguments, **named)
                return ready
            finally:
                if threading.current_thread() is main:
                    took_s = time.perf_counter() - begin
                    self.waited_s += took_s
                    self.slept_s += 0.0 if ready else took_s

        return timed


class Recorder:
    """In the process that runs tests."""

    def __init__(self) -> None:
        self._where = ["test"]
        self._cpu_s = 0.0
        self._starts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._waits = Waits()
        self._begun = (time.process_time(), 0.0, 0.0)
        LocalCluster.start = self._counted("cluster", LocalCluster.start)  # type: ignore[method-assign]
        schedule.run_schedule = self._counted("schedule", schedule.run_schedule)

    def _counted(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                self._starts[f"{kind} in {self._where[-1]}"] += 1
            return function(*arguments, **named)

        return counted

    def _begin(self) -> None:
        """Look at processes from now on; the guardian has marked this one."""
        self._processes = Processes()
        self._sleep = threading.Event()
        threading.Thread(target=self._poll, name="recorder", daemon=True).start()

    def _poll(self) -> None:
        while not self._sleep.wait(POLL_S):
            self._look()

    def _look(self) -> None:
        with self._lock:
            if VARIABLE not in os.environ:
                return
            cpu_s, kinds = self._processes.poll()
            self._cpu_s += cpu_s
            self._starts.update(f"{kind} in {self._where[-1]}" for kind in kinds)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        self._where.append(fixturedef.argname)
        try:
            return (yield)
        finally:
            self._where.pop()
            if fixturedef.argname == "guardian":
                self._begin()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        report = yield
        self._look()
        with self._lock:
            now = (time.process_time(), self._waits.waited_s, self._waits.slept_s)
            cpu_s, waited_s, slept_s = (end - begun for end, begun in zip(now, self._begun, strict=True))
            report.recorded = {
                "cpu_s": round(self._cpu_s + cpu_s, 3),
                "waited_s": round(waited_s, 3),
                "slept_s": round(slept_s, 3),
                "starts": dict(self._starts),
            }
            self._cpu_s, self._begun = 0.0, now
            self._starts.clear()
        return report


class Writer:
    """In the process that the user started: gathers the reports of all processes, and stores them."""

    def __init__(self, speed: Speed) -> None:
        self._speed = speed
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        new = {"name": report.nodeid, **dict.fromkeys((*PHASES.values(), *RECORDED), 0.0), "starts": Counter()}
        test = self._tests.setdefault(report.nodeid, new)
        test[PHASES[report.when or "call"]] += report.duration
        recorded = getattr(report, "recorded", {**dict.fromkeys(RECORDED, 0.0), "starts": {}})
        for name, value in recorded.items():
            if name == "starts":
                test[name].update(value)
            else:
                test[name] += value

    def pytest_sessionfinish(self) -> None:
        run = {"minutes": self._speed.minutes, "calibration_s": self._speed.calibration_s}
        stored.write(run, self._tests.values())
