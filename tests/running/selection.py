"""Which tests run: marks, and the part of a test's cases that a commit draws."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.commits import number_of_commit
from tests.running.stored import folder_of

WITHOUT_CHECK = ("simulation", "scenarios", "workflow", "suite", "experiments", "examples", "mutants")
"""Folders that ``make check`` leaves out, as it does what is marked ``not_in_check``."""

LEFT_OUT = pytest.StashKey[Counter[str]]()


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that ``--tests`` selects, and count the others by the reason why they are left out."""
    undrawn = _undrawn(items)
    reasons = [_left_out(item, config.getoption("--tests"), undrawn) for item in items]
    config.hook.pytest_deselected(items=[item for item, reason in zip(items, reasons, strict=True) if reason])
    config.stash[LEFT_OUT].update(reason for reason in reasons if reason)
    items[:] = [item for item, reason in zip(items, reasons, strict=True) if not reason]


def summary(config: pytest.Config) -> str:
    """Return a line about the tests that were left out; an empty one if all ran."""
    tests, out = config.getoption("--tests"), config.stash[LEFT_OUT]
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(out.items()))
    return f"left out: {counted}. make {'test' if tests == 'check' else 'test-all'} runs them" if out else ""


def _undrawn(items: list[pytest.Item]) -> set[str]:
    """Return the cases that this commit does not draw. Of each test function it draws at least one."""
    functions: dict[str, list[str]] = {}
    parts: dict[str, int] = {}
    for item in items:
        drawn = item.get_closest_marker("one_part_per_commit")
        if drawn is not None and item.get_closest_marker("only_in_test_all") is None:
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
    whole = item.get_closest_marker("only_in_test_all")
    if whole is not None:
        return str(whole.args[0])
    if item.get_closest_marker("needs_idle_machine") is not None:
        return "tests that need an idle machine"
    drawn = item.get_closest_marker("one_part_per_commit")
    if drawn is not None and item.nodeid in undrawn:
        return f"{drawn.args[0]} left to other commits"
    if tests == "most":
        return ""
    if item.get_closest_marker("live") is not None:
        return "live tests"
    return "slow tests" if folder_of(item.nodeid) in WITHOUT_CHECK or item.get_closest_marker("not_in_check") is not None else ""
