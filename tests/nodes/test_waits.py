"""The reason of a query: lost operators come first, what is recorded next, and the whole is cut once, at its end."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sbon_node.queries.describing.waits import KINDS, KnownReasons, QueryReason, Waits
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.api.states import operator_states
from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE

SILENT = QueryReason("no-answer", "d does not answer")
WAITS = Waits("", (SILENT, QueryReason("source-unread", "source a: no file")), (QueryReason("sink-lost", "sink at e: unknown"),))


def operator(name: str, state: str, reason: str = "", *, held_back: bool = False) -> OperatorInfo:
    return OperatorInfo(id=name, node="n", fragment="", state=state, reason=reason, held_back=held_back, stats=None)


def text(waits: Waits, operators: Iterable[OperatorInfo], judged: Collection[str] = ()) -> str:
    return waits.text(waits.reasons(operators, judged))


def test_all_that_a_query_waits_for_is_named_in_order_and_by_kind() -> None:
    operators = [
        operator("o1", operator_states.STARTING),
        operator("o2", LOST, "unknown"),
        operator("o3", operator_states.RUNNING, "held back", held_back=True),
        operator("o4", UNREACHABLE, "silent"),
        operator("o5", operator_states.QUARANTINED, "killed it"),
        operator("o6", operator_states.RUNNING, "no room"),
    ]
    before, after = "d does not answer; source a: no file", "o1 at n is starting; sink at e: unknown"
    expected = f"{before}; o2 at n: unknown; o5 at n: killed it; o6 at n: no room; {after}"
    assert text(WAITS, operators) == expected
    kinds = [reason.kind for reason in WAITS.reasons(operators)]
    of_operators = ["operator-lost", "operator-set-aside", "operator-waits", "operator-waits"]
    assert kinds == ["no-answer", "source-unread", *of_operators, "sink-lost"]


def test_judged_operators_are_named_though_nobody_answers_for_them() -> None:
    operators = [operator("o1", UNREACHABLE, "its backup is b"), operator("o2", LOST, "both gone")]
    waits = Waits("", (SILENT,))
    assert text(waits, operators) == "d does not answer; o2 at n: both gone"
    assert text(waits, operators, {"o1", "o2"}) == "o2 at n: both gone; d does not answer; o1 at n: its backup is b"


def test_lost_operators_come_before_a_recorded_reason_which_replaces_the_rest() -> None:
    recorded = WAITS._replace(recorded="being restarted")
    assert text(recorded, [operator("o1", LOST, "gone")]) == "being restarted"
    assert text(recorded, [operator("o1", LOST, "gone")], {"o1"}) == "o1 at n: gone; being restarted"
    assert text(recorded, [operator("o1", UNREACHABLE, "its backup is b")], {"o1"}) == "being restarted"


def test_a_judgement_is_not_missed_where_the_reason_is_cut() -> None:
    long = WAITS._replace(before=(QueryReason("no-answer", "x" * (MAX_REASON - 4)), *WAITS.before[1:]))
    assert text(long, [operator("o1", LOST, "gone")]).endswith("x; so")
    judged = text(long, [operator("o1", LOST, "both gone")], {"o1"})
    assert judged.startswith("o1 at n: both gone; xxx")
    assert len(judged) == MAX_REASON


def test_queries_are_counted_once_for_each_kind_of_reason() -> None:
    known = KnownReasons()
    for query in ("q1", "q2"):
        known.note(query, (*WAITS.before, QueryReason("no-answer", "e does not answer either")))
    known.note("q3", ())
    counts = known.counts(["q1", "q2", "q3", "q4"])
    assert counts == {**dict.fromkeys(KINDS, 0), "no-answer": 2, "source-unread": 2}
    assert known.text("q1") == "source a: no file"
    known.forget("q1")
    assert known.counts(["q1"]) == dict.fromkeys(KINDS, 0)
