"""The order of all tests, and which of them run one after another where two processes share them (``pytest -n 2``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

LONG = ("live", "suite", "simulation", "dashboard", "cli", "engine")
"""Rooms that take longest, which begin first so that both processes end at about the same time."""
SHARED = ("live", "suite", "dashboard")
"""Rooms whose tests share one cluster."""

ALONE = ("simulation", "scenarios")
"""Rooms whose tests share nothing."""

TESTS = Path(__file__).parent


class ByCluster(LoadScopeScheduling):  # type: ignore[misc]  # its package has no types
    """Tests that share a cluster run in one process, and so do those of a file; simulations share nothing."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(nodeid.split("::")[0])
        room = file.parts[1]
        return room if room in SHARED else nodeid if room in ALONE else str(file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(_room(item)) if _room(item) in LONG else len(LONG))


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByCluster:
    return ByCluster(config, log)


def _room(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]
