"""Plant each bug of the catalogue in a copy of the tree, and check that its tests fail: ``python -m tests.mutants``.

Prints a line for each mutant: ``caught``, ``missed`` (all of its tests passed) or ``broken`` (it does not fit the code, or a
test is gone). Exits with 1 if more than two are missed or any is broken. ``make test`` runs the same tests without a mutant.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.catalogue import ROOT, Mutant, load

MAX_MISSED = 2
COPIED = (
    "sbon_node",
    "protocol",
    "cli",
    "tests",
    "docs",
    "examples",
    "deploy",
    "pyproject.toml",
    "README.md",
    "docker-compose.yml",
)
TIME_LIMIT_S = 900.0
"""For the tests of one mutant."""
HANGING_S = 120
"""A single test that takes longer has failed: a bug that makes it hang is caught as well."""


def copy_tree(target: Path) -> None:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, target / name)
    data = ROOT.parent / "shared"
    if data.is_dir():
        (target.parent / "shared").symlink_to(data)


def tests_pass(tree: Path, tests: tuple[str, ...]) -> bool:
    """Whether all of ``tests`` pass in ``tree``. Raises ``RuntimeError`` where pytest ran none of them."""
    paths = os.pathsep.join(str(tree / folder) for folder in (".", "cli", "protocol"))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--timeout={HANGING_S}", *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=TIME_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ran nothing: {' '.join(tests)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def verdict(mutant: Mutant, folder: Path) -> str:
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    copy_tree(tree)
    (folder / "shared").unlink(missing_ok=True)
    try:
        mutant.apply(tree)
        return "missed" if tests_pass(tree, mutant.tests) else "caught"
    except (ValueError, RuntimeError) as error:
        return f"broken: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants to plant, by the beginning of their names; default all")
    parser.add_argument("--list", action="store_true", help="list the mutants and plant none")
    asked = parser.parse_args()
    mutants = [one for one in load() if not asked.names or one.name.startswith(tuple(asked.names))]
    if not mutants:
        parser.error("no mutant has such a name; --list lists them")
    if asked.list:
        for mutant in mutants:
            print(f"{mutant.name}: {mutant.why}")
        return 0
    return plant(mutants)


def plant(mutants: list[Mutant]) -> int:
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        for mutant in mutants:
            began = time.monotonic()
            verdicts.append(verdict(mutant, Path(folder)))
            print(f"{verdicts[-1]:7} {mutant.name} ({time.monotonic() - began:.0f} s): {mutant.why}", flush=True)
    caught, missed = verdicts.count("caught"), verdicts.count("missed")
    broken = len(verdicts) - caught - missed
    print(f"{caught} of {len(mutants)} caught, {missed} missed, {broken} broken")
    return 1 if broken or missed > MAX_MISSED else 0


if __name__ == "__main__":
    sys.exit(main())
