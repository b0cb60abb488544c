"""The catalogue of planted bugs fits the code, and the script that plants them tells caught from missed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.mutants.catalogue import ROOT, Mutant, load
from tests.mutants.planting import plant

MUTANTS = load()


@pytest.mark.parametrize("mutant", MUTANTS, ids=[one.name for one in MUTANTS])
def test_every_bug_fits_the_code(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.before) == 1
    for test in mutant.tests:
        assert (ROOT / test.split("::")[0]).exists(), f"{test} is gone"


def test_there_are_bugs_enough_over_all_packages() -> None:
    assert len(MUTANTS) >= 500
    packages = {one.name.split("/")[0] for one in MUTANTS}
    assert packages >= {"streams", "engine", "control", "connectors", "membership", "query", "placement"}


def test_a_bug_is_caught_and_one_that_changes_nothing_is_missed() -> None:
    bug = Mutant(
        name="credit",
        why="older reports take credit back",
        file="sbon_node/streams/links/credit.py",
        before="self._returned = max(self._returned, total)",
        after="self._returned = total",
        tests=("tests/streams/test_credit.py",),
    )
    harmless = replace(bug, after="self._returned = max(total, self._returned)")
    gone = replace(bug, before="a text that is gone")
    left_out = replace(bug, tests=("tests/engine/test_two_sessions.py",))
    verdicts = {one.mutant: one for one in plant([bug, harmless, gone, left_out], jobs=2)}
    assert [verdicts[one].outcome for one in (bug, harmless, gone, left_out)] == ["caught", "missed", "broken", "broken"]
    assert verdicts[bug].reason.startswith("tests/streams/test_credit.py::")
    assert "selects none" in verdicts[left_out].reason
