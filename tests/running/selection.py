"""Which tests run: marks, and the part of a test's cases that a commit draws."""

from __future__ import annotations

import zlib
from collections import Counter

import pytest

from tests.commits import number_of_commit
from tests.running import stored

CHECK_S = 1.5
"""Files that took as long or longer in the stored run are left out of ``make check``."""

LEFT_OUT = pytest.StashKey[Counter[tuple[str, str]]]()
"""How many tests were left out, by the reason and by what they are."""

IN_TEST_ALL, OTHER_COMMITS, IDLE = "only in make test-all", "left to other commits", "in need of an idle machine"
LIVE, SLOW = "live", "slow in the stored run"


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that ``--tests`` selects, and count the others."""
    undrawn, slow = _undrawn(items), {file for file, seconds in stored.read().files.items() if seconds >= CHECK_S}
    reasons = [_left_out(item, config.getoption("--tests"), undrawn, slow) for item in items]
    config.hook.pytest_deselected(items=[item for item, reason in zip(items, reasons, strict=True) if reason])
    config.stash[LEFT_OUT].update(reason for reason in reasons if reason)
    items[:] = [item for item, reason in zip(items, reasons, strict=True) if not reason]


def summary(config: pytest.Config) -> list[str]:
    """Return a line with the numbers of tests that were left out, after those of each kind with ``-v``; none if all ran."""
    out = config.stash[LEFT_OUT]
    if not out:
        return []
    verbose = config.get_verbosity() >= 0  # -q is the default, in pyproject.toml
    kinds = [f"left out: {count} {kind}, {reason}" for (reason, kind), count in sorted(out.items())] if verbose else []
    totals: Counter[str] = Counter()
    for (reason, _), count in out.items():
        totals[reason] += count
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(totals.items()))
    command = "make test" if config.getoption("--tests") == "check" else "make test-all"
    return [*kinds, f"left out: {counted}. {command} runs them{'' if verbose else ', -v lists them'}"]


def _undrawn(items: list[pytest.Item]) -> set[str]:
    """Return the cases that this commit does not draw: those that are marked with the same words take turns."""
    number, turns, out = number_of_commit() or 0, Counter[str](), set[str]()
    for item in items:
        marks = list(item.iter_markers("one_part_per_commit"))
        if len(marks) > 1:
            raise pytest.UsageError(
                f"{item.nodeid} is drawn by more than one mark: {', '.join(str(one.args[0]) for one in marks)}"
            )
        drawn = marks[0] if marks else None
        if drawn is not None and item.get_closest_marker("only_in_test_all") is None:
            words, parts = str(drawn.args[0]), drawn.kwargs["parts"]
            turn = zlib.crc32(words.encode()) + turns[words]  # so that first cases do not all come in the same commit
            turns[words] += 1
            if turn % parts != number % parts:
                out.add(item.nodeid)
    return out


def _left_out(item: pytest.Item, tests: str, undrawn: set[str], slow: set[str]) -> tuple[str, str] | None:
    """Return why a test does not run, and what it is; None if it does. ``slow`` are the files that ``check`` leaves out."""
    if tests == "all":
        return None
    whole = item.get_closest_marker("only_in_test_all")
    if whole is not None:
        return IN_TEST_ALL, str(whole.args[0])
    if item.get_closest_marker("needs_idle_machine") is not None:
        return IDLE, "measurements"
    drawn = item.get_closest_marker("one_part_per_commit")
    if drawn is not None and item.nodeid in undrawn:
        return OTHER_COMMITS, str(drawn.args[0])
    if tests == "most":
        return None
    if item.get_closest_marker("live") is not None:
        return LIVE, "tests"
    return (SLOW, "tests") if item.nodeid.partition("::")[0] in slow else None
