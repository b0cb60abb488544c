"""Selection and order of tests, and their distribution over two processes (``pytest -n 2``).

``--tests check`` takes the tests without Spark and long waits, ``--tests most`` all but those marked ``thorough`` or ``alone``,
and one part of the cases of each test that is marked ``drawn``: another part with the next commit. Both list at their end the
tests left out. By default all run.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.commits import number_of_commit
from tests.guardian import Guardian

settings.register_profile("sbon", deadline=None)  # A busy machine is no failure.
settings.load_profile("sbon")

LONG = ("live", "suite", "dashboard", "examples", "docs", "experiments", "engine", "sql", "simulation", "cli", "workflow")
"""Packages that take longest as a whole or in a single test, which begin first: short tests come last, so that both processes
end at about the same time."""
SHARED = ("live", "suite", "dashboard")
"""Packages whose tests share one cluster."""

ALONE = ("simulation", "scenarios")
"""Packages whose tests share nothing."""

SLOW = ("simulation", "scenarios", "workflow", "suite", "experiments", "examples", "mutants")
"""Packages that ``--tests check`` leaves out, as it does what is marked ``slow``."""

TESTS = Path(__file__).parent
IN_MEMORY, LEAST_FREE = Path("/dev/shm"), 6 * 2**30
"""Folder of the tests' files where it has so many bytes free: a file system on a disk takes milliseconds for each renamed or
deleted file, and simulated nodes have many of them. ``PYTEST_DEBUG_TEMPROOT`` names another folder."""
LEFT_OUT = pytest.StashKey[Counter[str]]()
SEED = pytest.StashKey[int]()
SECONDS = pytest.StashKey[Counter[str]]()
"""By package, with the fixtures of its tests; CONTRIBUTING.md has them."""
SEEDED = pytest.StashKey[bool]()
"""Whether any of the tests that run takes the seed."""


class ByCluster(LoadScopeScheduling):  # type: ignore[misc]  # its package has no types
    """Tests that share a cluster run in one process, and so do those of a file; simulations share nothing."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(nodeid.split("::")[0])
        package = file.parts[1]
        return package if package in SHARED else nodeid if package in ALONE else str(file)


class Timer:
    def __init__(self, seconds: Counter[str]) -> None:
        self._seconds = seconds

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        parts = Path(report.nodeid.split("::")[0]).parts[1:-1]
        self._seconds["/".join(parts[:1]) or "."] += report.duration


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tests", choices=("check", "most", "all"), default="all", help="how many of the tests run")
    parser.addoption("--seed", type=int, default=0, help="of the random schedules")


def pytest_configure(config: pytest.Config) -> None:
    """The processes of ``-n 2`` have one seed, and one folder in memory."""
    if _may_hold_programs(IN_MEMORY) and shutil.disk_usage(IN_MEMORY).free > LEAST_FREE:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))
    config.stash[SEED] = getattr(config, "workerinput", {}).get("seed", config.getoption("--seed"))
    config.stash[LEFT_OUT], config.stash[SEEDED], config.stash[SECONDS] = Counter(), False, Counter()
    config.pluginmanager.register(Timer(config.stash[SECONDS]))


def _may_hold_programs(folder: Path) -> bool:
    """Say whether libraries can be loaded from the folder, as Spark does."""
    return folder.is_dir() and os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_NOEXEC


@pytest.hookimpl(trylast=True)  # what -m deselects is not left out here
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(_package(item)) if _package(item) in LONG else len(LONG))
    undrawn = _undrawn(items)
    reasons = [_left_out(item, config.getoption("--tests"), undrawn) for item in items]
    out = [item for item, reason in zip(items, reasons, strict=True) if reason]
    config.hook.pytest_deselected(items=out)
    config.stash[LEFT_OUT].update(reason for reason in reasons if reason)
    items[:] = [item for item, reason in zip(items, reasons, strict=True) if not reason]
    config.stash[SEEDED] = any("schedule_seed" in getattr(item, "fixturenames", ()) for item in items)


def _undrawn(items: list[pytest.Item]) -> set[str]:
    """Return the cases that this commit does not draw. Of each test function it draws at least one."""
    functions: dict[str, list[str]] = {}
    parts: dict[str, int] = {}
    for item in items:
        drawn = item.get_closest_marker("drawn")
        if drawn is not None and item.get_closest_marker("thorough") is None:
            function = item.nodeid.partition("[")[0]
            functions.setdefault(function, []).append(item.nodeid)
            parts[function] = drawn.kwargs["parts"]
    number = number_of_commit() or 0
    out: set[str] = set()
    for function, cases in functions.items():
        count = min(parts[function], len(cases))
        out.update(case for position, case in enumerate(cases) if position % count != number % count)
    return out


def _left_out(item: pytest.Item, tests: str, undrawn: set[str]) -> str:
    """Return why a test does not run, in the words of the summary; nothing if it does."""
    if tests == "all":
        return ""
    thorough = item.get_closest_marker("thorough")
    if thorough is not None:
        return str(thorough.args[0])
    if item.get_closest_marker("alone") is not None:
        return "tests that run alone"
    drawn = item.get_closest_marker("drawn")
    if drawn is not None and item.nodeid in undrawn:
        return f"{drawn.args[0]} left to other commits"
    if tests == "most":
        return ""
    if item.get_closest_marker("live") is not None:
        return "live tests"
    return "slow tests" if _package(item) in SLOW or item.get_closest_marker("slow") is not None else ""


def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = node.config.stash[SEED]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        stash = session.config.stash
        session.config.workeroutput.update(left_out=dict(stash[LEFT_OUT]), seeded=stash[SEEDED])


def pytest_testnodedown(node: Any) -> None:
    """All processes of ``-n 2`` leave out the same."""
    output = getattr(node, "workeroutput", {})
    node.config.stash[LEFT_OUT], node.config.stash[SEEDED] = Counter(output.get("left_out")), output.get("seeded", False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[SEEDED]:
        terminalreporter.write_line(f"random schedules of --seed {config.stash[SEED]}; another number draws others")
    seconds = config.stash[SECONDS]
    if len(seconds) > 1:
        terminalreporter.write_line("seconds: " + ", ".join(f"{package} {took:.0f}" for package, took in seconds.most_common()))
    tests, out = config.getoption("--tests"), config.stash[LEFT_OUT]
    if out:
        counted = ", ".join(f"{count} {reason}" for reason, count in sorted(out.items()))
        terminalreporter.write_line(f"left out: {counted}. make {'test' if tests == 'check' else 'test-all'} runs them")


@pytest.fixture(scope="session", autouse=True)
def guardian() -> Iterator[None]:
    """Ends the daemons of this run if the run itself is killed."""
    guardian = Guardian()
    yield
    guardian.end()


@pytest.fixture(scope="session")
def schedule_seed(pytestconfig: pytest.Config) -> int:
    """Seed of this run's random schedules: the same ones in each run, unless ``--seed`` names another."""
    return pytestconfig.stash[SEED]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByCluster:
    return ByCluster(config, log)


def _package(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]
