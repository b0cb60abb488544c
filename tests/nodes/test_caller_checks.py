"""Checks of callers are bounded, and one caller does not keep the others from theirs."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from sbon_node.base.caller_checks import SHARE, CallerChecks
from sbon_protocol.errors import SbonError


def test_one_caller_has_a_share_of_the_checks() -> None:
    checks = CallerChecks(8, "control.checks")
    with ExitStack() as greedy:
        for _ in range(8 // SHARE):
            greedy.enter_context(checks.one("greedy", "q.o1"))
        with pytest.raises(SbonError, match="2 of them for greedy") as refused:
            greedy.enter_context(checks.one("greedy", "q.o1"))
        assert (refused.value.code, refused.value.where) == ("too-many-checks", "q.o1")
        with checks.one("other", "q.o2"):
            pass
    with checks.one("greedy", "q.o1"):
        pass


def test_all_callers_together_are_bounded() -> None:
    checks = CallerChecks(4, "migration.checks")
    with ExitStack() as many:
        for number in range(4):
            many.enter_context(checks.one(f"node{number}", "q.o1"))
        with pytest.raises(SbonError, match="4 registers are being read") as refused:
            many.enter_context(checks.one("another", "q.o1"))
        assert (refused.value.code, refused.value.hint) == ("too-many-moves", "try again later, or raise migration.checks")


def test_a_check_that_fails_ends() -> None:
    checks = CallerChecks(1, "control.checks")
    with pytest.raises(ValueError, match="lost"), checks.one("a", "q.o1"):
        raise ValueError("lost")
    with checks.one("b", "q.o1"):
        pass
