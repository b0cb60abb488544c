"""Options of pytest for this project's tests; :mod:`tests.running` does the work.

``--tests check`` takes the tests without Spark and long waits, ``--tests most`` all but those marked ``only_in_test_all`` or
``needs_idle_machine``, and one part of the cases of each test that is marked ``one_part_per_commit``.
By default all run. Where not all run, Hypothesis draws fewer examples (:mod:`tests.examples_drawn`).
"""

from __future__ import annotations

import gc
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import settings

from tests.guardian import Guardian
from tests.running import selection, stored
from tests.running.failures import Failures
from tests.running.recorder import Recorder, Writer
from tests.running.scheduling import ByGroup, order
from tests.running.selection import LEFT_OUT
from tests.running.speed import Speed

for profile in ("all", "few"):  # see tests.examples_drawn
    settings.register_profile(profile, deadline=None)  # A busy machine is no failure.

IN_MEMORY, LEAST_FREE = Path("/dev/shm"), 6 * 2**30
"""Folder of the tests' files where it has so many bytes free: a file system on a disk takes milliseconds for each renamed or
deleted file, and simulated nodes have many of them. ``PYTEST_DEBUG_TEMPROOT`` names another folder."""
SEED = pytest.StashKey[int]()
SEEDED = pytest.StashKey[bool]()
"""Whether any of the tests that run takes the seed."""
SPEED = pytest.StashKey[Speed]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tests", choices=("check", "most", "all"), default="all", help="how many of the tests run")
    parser.addoption("--seed", type=int, default=0, help="of the random schedules")
    parser.addoption("--shuffle", type=int, help="run the files in a random order of this seed")
    parser.addoption("--record", action="store_true", help="store what the tests cost in docs/results/tests.json")


def pytest_configure(config: pytest.Config) -> None:
    """The processes of ``-n 2`` have one seed, and one folder in memory."""
    if _may_hold_programs(IN_MEMORY) and shutil.disk_usage(IN_MEMORY).free > LEAST_FREE:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))
    config.stash[SEED] = getattr(config, "workerinput", {}).get("seed", config.getoption("--seed"))
    config.stash[LEFT_OUT], config.stash[SEEDED] = Counter(), False
    settings.load_profile("all" if config.getoption("--tests") == "all" else "few")
    runs_tests = not config.getoption("numprocesses", default=None)
    if config.getoption("--record") and runs_tests:
        config.pluginmanager.register(Recorder())
    if not hasattr(config, "workerinput"):
        speed = config.stash[SPEED] = Speed(stored.read(), bounded=config.getoption("--tests") == "most")
        config.pluginmanager.register(speed)
        config.pluginmanager.register(Failures(config))
        if config.getoption("--record"):
            config.pluginmanager.register(Writer(speed))


def _may_hold_programs(folder: Path) -> bool:
    """Say whether libraries can be loaded from the folder, as Spark does."""
    return folder.is_dir() and os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_NOEXEC


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage meanwhile: there is little among ten thousand tests, and looking for it takes a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)  # what -m deselects is not left out here
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    selection.select(config, items)
    order(items, stored.read(), config.getoption("--shuffle"))
    config.stash[SEEDED] = any("schedule_seed" in getattr(item, "fixturenames", ()) for item in items)


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
    for line in config.stash[SPEED].lines():
        terminalreporter.write_line(line)
    for line in selection.summary(config):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def guardian() -> Iterator[None]:
    """Ends the daemons of this run if the run itself is killed."""
    guardian = Guardian()
    yield
    guardian.end()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Commands that run in this process set up its log; the next test has it as it was."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def schedule_seed(pytestconfig: pytest.Config) -> int:
    """Seed of this run's random schedules: the same ones in each run, unless ``--seed`` names another."""
    return pytestconfig.stash[SEED]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByGroup:
    return ByGroup(config, log)
