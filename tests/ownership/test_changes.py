"""Changes of registers, by the states that they meet."""

from __future__ import annotations

import pytest

from sbon_node.ownership.consensus.changes import CompareAndSet, Result, Verdict
from sbon_node.ownership.consensus.states import Acceptor, Configuration, State

INITIAL = Configuration(1, (Acceptor("a", "a1"),))


@pytest.mark.parametrize(
    "tokens, verdict",
    [(("first", "chosen"), Verdict.CONFLICT), (("first", "accepted"), Verdict.APPLIED), (("first", "mine"), Verdict.APPLIED)],
    ids=["another was chosen", "it was chosen", "the change itself was"],
)
def test_a_change_of_a_state_that_need_not_be_chosen_names_the_one_it_was_made_for(
    tokens: tuple[str, ...], verdict: Verdict
) -> None:
    """Its maker has accepted a second state, and does not know which one a majority has accepted."""
    current = State(2, b"second", tokens, INITIAL)
    found = CompareAndSet(expected=2, value=b"third", token="mine", base="accepted")(current, INITIAL)
    changed = State(3, b"third", (*tokens, "mine"), INITIAL) if tokens[-1] == "accepted" else current
    assert found == Result(changed, verdict)
