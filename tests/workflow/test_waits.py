"""The reason of a query: lost operators come first, what is recorded next, and the whole is cut once, at its end."""

from __future__ import annotations

from sbon_node.model.bounded import MAX_REASON
from sbon_node.model.queries import OperatorInfo
from sbon_node.model.states import operator_states
from sbon_node.model.states.lifecycle import LOST, UNREACHABLE
from sbon_node.queries.describe import Waits

WAITS = Waits("", ("d does not answer",), ("source a: no file",), ("sink at e: unknown",))


def operator(name: str, state: str, reason: str = "") -> OperatorInfo:
    return OperatorInfo(id=name, node="n", fragment="", state=state, reason=reason, stats=None)


def test_all_that_a_query_waits_for_is_named_in_order() -> None:
    operators = [
        operator("o1", operator_states.STARTING),
        operator("o2", LOST, "unknown"),
        operator("o3", operator_states.RUNNING, "slow"),
        operator("o4", UNREACHABLE, "silent"),
    ]
    expected = "d does not answer; source a: no file; o2 at n: unknown; o1 at n is starting; sink at e: unknown"
    assert WAITS.reason(operators) == expected


def test_judged_operators_are_named_though_nobody_answers_for_them() -> None:
    operators = [operator("o1", UNREACHABLE, "its backup is b"), operator("o2", LOST, "both gone")]
    waits = Waits("", ("d does not answer",), (), ())
    assert waits.reason(operators) == "d does not answer; o2 at n: both gone"
    assert waits.reason(operators, {"o1", "o2"}) == "o2 at n: both gone; d does not answer; o1 at n: its backup is b"


def test_lost_operators_come_before_a_recorded_reason_which_replaces_the_rest() -> None:
    recorded = WAITS._replace(recorded="being restarted")
    assert recorded.reason([operator("o1", LOST, "gone")]) == "being restarted"
    assert recorded.reason([operator("o1", LOST, "gone")], {"o1"}) == "o1 at n: gone; being restarted"
    assert recorded.reason([operator("o1", UNREACHABLE, "its backup is b")], {"o1"}) == "being restarted"


def test_a_judgement_is_not_missed_where_the_reason_is_cut() -> None:
    long = WAITS._replace(silences=("x" * (MAX_REASON - 4),))
    assert long.reason([operator("o1", LOST, "gone")]).endswith("x; so")
    told = long.reason([operator("o1", LOST, "both gone")], {"o1"})
    assert told.startswith("o1 at n: both gone; xxx")
    assert len(told) == MAX_REASON
