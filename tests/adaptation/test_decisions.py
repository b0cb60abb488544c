"""Decisions of a query's leader: kept, bounded, and shown with those of the hosts."""

from __future__ import annotations

import itertools
from typing import Any

from sbon_node.adaptation.decisions import DecisionLog, LeaderDecisions
from sbon_node.base.events import Bus, MoveDecided
from sbon_protocol.api.adaptation import MOVES, STAYS, MoveDecision
from sbon_protocol.api.queries import MAX_SHOWN_DECISIONS, OperatorInfo, QueryInfo
from sbon_protocol.errors import SbonError
from tests.nodes.test_notifications import told


def decision(code: str, at_ms: int = 0, **fields: Any) -> MoveDecision:
    return MoveDecision(operator="q.b0", node="a", at_ms=at_ms, **{"verdict": STAYS, "code": code, "reason": code, **fields})


def info(*nodes: str, decisions: tuple[MoveDecision, ...] = ()) -> QueryInfo:
    operators = tuple(
        OperatorInfo(id=f"q.b{number}", node=node, fragment="", state="running", decisions=decisions)
        for number, node in enumerate(nodes)
    )
    return QueryInfo(id="q", uid="q", sql="", state="running", node="l", consumer="a", operators=operators)


class Leader:
    """Node ``l``, whose clock counts its decisions, and the events that it has published."""

    def __init__(self, most: int = 16) -> None:
        times = itertools.count(1)
        bus = Bus("l", lambda: 0)
        self._listener = bus.listen(("placement",), limit=100, wake=lambda: None)
        self.decisions = LeaderDecisions("l", bus, lambda: next(times), most)

    def published(self) -> list[MoveDecided]:
        return [event for event in told(self._listener) if isinstance(event, MoveDecided)]

    def shown(self, query: QueryInfo) -> list[list[tuple[str, str, int]]]:
        operators = self.decisions.added("q", query.operators)
        return [[(one.code, one.target, one.times) for one in operator.decisions] for operator in operators]


def test_a_log_counts_equal_decisions_to_stay_and_forgets_the_oldest() -> None:
    log = DecisionLog(2)
    entered = [log.enter(decision(code)) for code in ("rests", "rests", "unchanged", "rests")]
    assert entered == [True, False, True, True]
    assert [(one.code, one.times) for one in log.all()] == [("unchanged", 1), ("rests", 1)]
    moves = [log.enter(decision("saves", verdict=MOVES, target="b")) for _ in range(2)]
    assert moves == [True, True], "two moves are two decisions"


def test_all_operators_stay_or_those_that_differ_move() -> None:
    leader, query = Leader(), info("a", "b")
    leader.decisions.begin("q")
    leader.decisions.enter(query, STAYS, "not-faster", "slow")
    leader.decisions.enter(query, STAYS, "not-faster", "slow still")
    leader.decisions.enter(query, MOVES, "faster", "fast", {"q.b0": "a", "q.b1": "c"})
    assert leader.shown(query) == [[("not-faster", "", 2)], [("not-faster", "", 2), ("faster", "c", 1)]]
    assert [(one.operator, one.code, one.target) for one in leader.published()] == [
        ("q.b0", "not-faster", ""),
        ("q.b1", "not-faster", ""),
        ("q.b1", "faster", "c"),
    ]


def test_a_move_that_failed_says_so() -> None:
    leader, query = Leader(), info("a")
    leader.decisions.begin("q")
    leader.decisions.enter(query, MOVES, "faster", "fast", {"q.b0": "c"})
    leader.decisions.failed("q", "q.b0", SbonError("no-capacity", "c is full"))
    (operator,) = leader.decisions.added("q", query.operators)
    assert operator.decisions[0].outcome == "given-up: c is full"


def test_those_of_hosts_and_leader_are_shown_in_the_order_of_time_and_bounded() -> None:
    leader = Leader(most=MAX_SHOWN_DECISIONS + 4)
    leader.decisions.begin("q")
    of_host = (decision("old"), decision("new", at_ms=1000))
    query = info("a", decisions=of_host)
    for number in range(2):
        leader.decisions.enter(query, STAYS, f"look{number}", "")
    assert [code for code, _, _ in leader.shown(query)[0]] == ["old", "look0", "look1", "new"]
    for number in range(2, MAX_SHOWN_DECISIONS + 4):
        leader.decisions.enter(query, STAYS, f"look{number}", "")
    shown = leader.shown(query)[0]
    assert (len(shown), shown[-1][0], shown[-2][0]) == (MAX_SHOWN_DECISIONS, "new", f"look{MAX_SHOWN_DECISIONS + 3}")


def test_nothing_is_kept_of_a_query_that_another_node_leads() -> None:
    leader, query = Leader(), info("a")
    leader.decisions.begin("q")
    leader.decisions.enter(query, STAYS, "not-faster", "slow")
    leader.decisions.forget("q")
    leader.decisions.enter(query, STAYS, "no-placement", "none")
    leader.decisions.failed("q", "q.b0", SbonError("no-capacity", "full"))
    assert leader.shown(query) == [[]]
    assert len(leader.published()) == 2
