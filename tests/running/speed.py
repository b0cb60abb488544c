"""How long the run takes, beside the stored one: the lines at its end, and the bound that it must keep."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter

import pytest

from tests.running.stored import StoredRun, folder_of

ROUNDS, NUMBERS = 9, 20_000  # Some .2 s: single tests and planted bugs pay for it as well.
MOST_MINUTES = 40.0
"""A selection as that of ``make test`` that takes longer on the stored machine's speed has failed."""
MOST_RATIO = 2.0
"""A machine that seems slower than that is given no more time: a calibration beside other work tells little."""
ADDED_S = 60.0
SLOWEST = 10


def calibrate() -> float:
    """Return the median of the wall seconds that a fixed piece of work takes, with the machine's load of now."""

    def work() -> float:
        begin = time.perf_counter()
        table = {str(number): number * 0.5 for number in range(NUMBERS)}
        json.loads(json.dumps(table))
        return time.perf_counter() - begin

    return statistics.median(work() for _ in range(ROUNDS))


class Speed:
    """Sums up the reports of all processes, in the process that the user started."""

    def __init__(self, stored: StoredRun, *, bounded: bool) -> None:
        """``bounded`` says whether the run is one that may take ``MOST_MINUTES``."""
        self.calibration_s = calibrate()
        self.minutes = 0.0
        self._stored, self._bounded = stored, bounded
        self._began = time.monotonic()
        self._tests: Counter[str] = Counter()

    @property
    def ratio(self) -> float:
        """How many times as long this machine takes as the stored one; 1 if no run is stored."""
        return self.calibration_s / self._stored.calibration_s if self._stored.calibration_s else 1.0

    @property
    def worker_s(self) -> float:
        return float(sum(self._tests.values()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid] += report.duration  # type: ignore[assignment]  # a counter of seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.minutes = (time.monotonic() - self._began) / 60
        if self.too_long and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @property
    def too_long(self) -> bool:
        """A calibration that was too quick by chance fails no run that takes less by the clock.

        Without a stored run there is no bound.
        """
        bounded = self._bounded and bool(self._stored.calibration_s)
        return bounded and self.minutes / min(max(1.0, self.ratio), MOST_RATIO) > MOST_MINUTES

    def lines(self) -> list[str]:
        """Return the seconds by folder and the slowest tests, in brackets those of the stored run."""
        folders: Counter[str] = Counter()
        for test, took in self._tests.items():
            folders[folder_of(test)] += took
        if len(folders) < 2:
            return []
        known, ended = self._stored.folders(), []
        ended.append("seconds: " + ", ".join(f"{one} {took:.0f}{_beside(known.get(one))}" for one, took in folders.most_common()))
        whole = len(folders) >= len(known) > 1
        if whole:
            ended.append(
                f"stored run: {self._stored.date}, commit {self._stored.commit}, in brackets; this machine takes "
                f"{self.ratio:.2f} times as long"
            )
            ended += [
                f"{took:8.1f}{_beside(self._stored.tests.get(test)):8} {test}" for test, took in self._tests.most_common(SLOWEST)
            ]
            added = self.worker_s / self.ratio - sum(self._stored.files.values())
            ended.append(f"in all {self.worker_s:.0f} s of workers, {added:+.0f} s at the stored machine's speed")
            if added > ADDED_S:
                ended.append(f"more than {ADDED_S:.0f} s are new: the commit says why, or the tests get faster; then make record")
        if self.too_long:
            ended.append(f"{self.minutes:.0f} minutes are more than {MOST_MINUTES:.0f} at the stored machine's speed: failed")
        return ended


def _beside(seconds: float | None) -> str:
    return "" if seconds is None else f" ({seconds:.0f})"
