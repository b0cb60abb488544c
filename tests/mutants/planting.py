"""Plant bugs in copies of the tree, some side by side, and run for each its tests, as far as ``make test`` selects them.

Every run of pytest is a fork of this process, which has imported the libraries of others before: their imports take longer
than most tests.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.mutants.catalogue import ROOT, Mutant

COPIED = (
    "sbon_node",
    "protocol",
    "cli",
    "lab",
    "tests",
    "docs",
    "examples",
    "deploy",
    "Makefile",
    "pyproject.toml",
    "README.md",
    "docker-compose.yml",
)
PRELOADED = ("pytest", "hypothesis", "schemathesis.pytest.plugin", "numpy", "pyarrow", "duckdb", "sqlglot", "aiohttp", "uvloop")
TIME_LIMIT_S = 900.0
"""For the tests of one mutant."""
HANGING_S = 60
"""A single test that takes longer has failed: a bug that makes it hang is caught as well."""
POLL_S = 0.05
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
BEGUN = re.compile(r"^(tests/\S+::\S+)", re.MULTILINE)
NO_TESTS, OWN_END = 5, 70
"""How pytest ends if it ran no test, and how the process ends if pytest raises an error."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one bug. ``broken``: it does not fit the code, or ``make test`` selects none of its tests."""

    mutant: Mutant
    outcome: Literal["caught", "missed", "broken"]
    reason: str
    """The test that caught it, or why it is broken."""
    seconds: float


class Tree:
    """A copy of the project in which one bug at a time is planted."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, self.root / name)
            else:
                shutil.copy2(ROOT / name, self.root / name)
        data = ROOT.parent / "shared"
        if data.is_dir():
            (folder / "shared").symlink_to(data)
        self._planted = 0

    def plant(self, mutant: Mutant) -> None:
        """Raises ``ValueError`` where the bug does not fit the code. The file gets a time of its own: byte-code names it."""
        path = self.root / mutant.file
        before = path.stat()
        mutant.apply(self.root)
        self._planted += 1
        os.utime(path, (before.st_mtime + self._planted, before.st_mtime + self._planted))

    def mend(self, mutant: Mutant) -> None:
        shutil.copy2(ROOT / mutant.file, self.root / mutant.file)


class Run:
    """The tests of one planted bug, in a process of their own."""

    def __init__(self, mutant: Mutant, tree: Tree, log: Path) -> None:
        self.mutant, self.tree = mutant, tree
        self._log, self._began = log, time.monotonic()
        self._process = 0
        self.verdict: Verdict | None = None
        try:
            tree.plant(mutant)
        except ValueError as error:
            self._end("broken", str(error))
        else:
            self._process = os.fork()
            if not self._process:
                _become_pytest(tree.root, mutant.tests, log)

    def poll(self) -> bool:
        """Say whether it has ended; then it has a verdict."""
        if self.verdict is None:
            ended, status = os.waitpid(self._process, os.WNOHANG)
            if ended:
                self._judge(os.waitstatus_to_exitcode(status))
            elif time.monotonic() - self._began > TIME_LIMIT_S:
                self.kill()
                self._end("caught", "the time limit")
        return self.verdict is not None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.killpg(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)

    def _judge(self, code: int) -> None:
        output = self._log.read_text(encoding="utf-8", errors="replace")
        failed, begun = FAILED.search(output), BEGUN.findall(output)
        if code == 0:
            self._end("missed", "")
        elif code == 1 or code < 0 or (code == OWN_END and failed):  # it may fail once more on what the test has left
            self._end("caught", failed[1] if failed else f"{begun[-1] if begun else 'pytest'} never ends")
        else:
            self._end("broken", "make test selects none of its tests" if code == NO_TESTS else f"pytest: {output[-2000:]}")

    def _end(self, outcome: Literal["caught", "missed", "broken"], reason: str) -> None:
        self.verdict = Verdict(self.mutant, outcome, reason, time.monotonic() - self._began)
        self.tree.mend(self.mutant)


def plant(mutants: Sequence[Mutant], jobs: int) -> Iterator[Verdict]:
    """Yield the verdicts as they come; ``jobs`` bugs are planted at a time."""
    waiting, running = list(mutants), list[Run]()
    for module in PRELOADED:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        free = []
        for number in range(jobs):
            (place := Path(folder) / str(number)).mkdir()
            free.append(Tree(place))
        try:
            while waiting or running:
                while waiting and free:
                    tree = free.pop()
                    running.append(Run(waiting.pop(0), tree, tree.root.parent / "log"))
                time.sleep(POLL_S)
                for run in [one for one in running if one.poll()]:
                    running.remove(run)
                    free.append(run.tree)
                    assert run.verdict is not None
                    yield run.verdict
        finally:
            for run in running:
                run.kill()


def _become_pytest(tree: Path, tests: Sequence[str], log: Path) -> None:
    """Run pytest in this forked process, and end it."""
    code = OWN_END
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # for the life of this process
        os.chdir(tree)
        folders = [str(tree / folder) for folder in (".", "cli", "lab", "protocol")]
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        sys.path[:] = [
            *folders,
            *(entry for entry in sys.path if "site-packages" in entry or not Path(entry).is_relative_to(ROOT)),
        ]
        for name in [
            name
            for name in sys.modules
            if name.split(".")[0] in ("tests", "sbon", "sbon_node", "sbon_cli", "sbon_lab", "sbon_protocol")
        ]:
            del sys.modules[name]
        importlib.invalidate_caches()
        import pytest

        options = ["-x", "-vv", "-p", "no:cacheprovider", "--tb=no", f"--timeout={HANGING_S}", "--timeout-method=thread"]
        code = int(pytest.main([*options, "--tests", "most", *tests]))
    except Exception:  # noqa: BLE001  # the log has it, and the verdict is that it is broken
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
