"""The order of all tests, and which of them run one after another where two processes share them (``pytest -n 2``)."""

from __future__ import annotations

from pathlib import Path

import pytest

LONG = ("live", "suite", "simulation", "cli", "engine")
"""Rooms that take longest, which begin first so that both processes end at about the same time."""
SHARED = ("live", "suite")
"""Rooms whose tests share one cluster."""

TESTS = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in a hook of the same name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(_room(item)) if _room(item) in LONG else len(LONG))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_room(item) if _room(item) in SHARED else item.path.name))


def _room(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]
