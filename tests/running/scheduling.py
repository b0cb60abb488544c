"""Order of the tests and their distribution over the processes of ``pytest -n 2``, by the seconds of the stored run.

Tests that share fixtures form a group and run in one process. The groups that take longest begin first, so that the processes
end at about the same time.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.running.stored import StoredRun, folder_of

SHARED = ("tests/live", "tests/suite", "tests/dashboard", "tests/engine/shared", "tests/planning/sql/on_spark")
"""Folders whose tests share one cluster, one engine or one JVM."""

APART = ("simulation", "scenarios")
"""Folders whose tests share nothing."""

UNKNOWN_S = 1.0
"""Expected seconds of a test whose file is not in the stored run."""


def group_of(test: str) -> str:
    file = test.split("::")[0]
    folder = str(Path(file).parent)
    return folder if folder in SHARED else test if folder_of(test) in APART else file


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # its package has no types
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def order(items: list[pytest.Item], stored: StoredRun, shuffle: int | None) -> None:
    """Sort the tests by their groups: those that take longest first, or in a random order of the seed ``shuffle``."""
    seconds: defaultdict[str, float] = defaultdict(float)
    counts: defaultdict[str, int] = defaultdict(int)
    for item in items:
        counts[item.nodeid.split("::")[0]] += 1
    for item in items:
        file = item.nodeid.split("::")[0]
        share = stored.files[file] / counts[file] if file in stored.files else UNKNOWN_S
        seconds[group_of(item.nodeid)] += stored.tests.get(item.nodeid, share)
    groups = sorted(seconds, key=lambda group: -seconds[group])
    if shuffle is not None:
        random.Random(shuffle).shuffle(groups)
    places = {group: place for place, group in enumerate(groups)}
    items.sort(key=lambda item: places[group_of(item.nodeid)])
