"""Why a running query may not progress: a kind for metrics and alerts, and a text for people. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.api.states import operator_states
from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE

ReasonKind = Literal[
    "no-answer",
    "source-unread",
    "source-quiet",
    "operator-lost",
    "operator-set-aside",
    "operator-waits",
    "sink-lost",
    "sink-failed",
    "sink-paused",
    "sink-not-taken-over",
]

KINDS: Mapping[ReasonKind, str] = {
    "no-answer": "A node that has a part of the query gives no answer.",
    "source-unread": "A source cannot be read.",
    "source-quiet": "A source without new rows holds back windows or joins.",
    "operator-lost": "An operator is lost with its node, and no backup can go on with it.",
    "operator-set-aside": "An operator has failed, or is quarantined.",
    "operator-waits": "An operator starts, or waits for its disk or engine.",
    "sink-lost": "The node of a sink does not know the sink.",
    "sink-failed": "A further sink has failed alone.",
    "sink-paused": "A sink cannot deliver its rows now.",
    "sink-not-taken-over": "The node of a sink is gone, and no other node takes the sink over.",
}
"""All kinds, with their meanings. docs/operations.md gives each its metric and its alert."""


class QueryReason(NamedTuple):
    """One reason why a query may not progress, or is shown only partly."""

    kind: ReasonKind
    text: str


class Waits(NamedTuple):
    """Reasons of a query beside its operators: those ``before`` them, and those of its ``sinks``.

    A ``recorded`` reason, of a query that is over, replaces all but lost operators.
    """

    recorded: str = ""
    before: tuple[QueryReason, ...] = ()
    sinks: tuple[QueryReason, ...] = ()

    def reasons(self, operators: Iterable[OperatorInfo], judged: Collection[str] = ()) -> tuple[QueryReason, ...]:
        """Return all reasons; operators that are ``judged`` are named even if nobody answers for them, lost ones first."""
        lost, waiting, starting = list[QueryReason](), list[QueryReason](), list[QueryReason]()
        for one in operators:
            if one.id in judged and one.state == LOST:
                lost.append(_of_operator(one))
            elif one.reason and (one.id in judged or not (one.held_back or one.state == UNREACHABLE)):
                waiting.append(_of_operator(one))
            elif one.state == operator_states.STARTING:
                starting.append(QueryReason("operator-waits", f"{one.id} at {one.node} is starting"))
        return (*lost, *(() if self.recorded else (*self.before, *waiting, *starting, *self.sinks)))

    def text(self, reasons: Iterable[QueryReason]) -> str:
        """Return the reasons for people, cut once at the end; empty if there is none."""
        return "; ".join([*(reason.text for reason in reasons), *([self.recorded] if self.recorded else [])])[:MAX_REASON]


class KnownReasons:
    """Reasons of queries that this node leads, as last described; by the queries' uids."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[QueryReason, ...]] = {}

    def note(self, query: str, reasons: tuple[QueryReason, ...]) -> None:
        self._known[query] = reasons

    def forget(self, query: str) -> None:
        self._known.pop(query, None)

    def text(self, query: str) -> str:
        """Return the reasons of a query for a list; membership knows sooner which nodes give no answer."""
        return "; ".join(one.text for one in self._known.get(query, ()) if one.kind != "no-answer")

    def counts(self, queries: Iterable[str]) -> dict[ReasonKind, int]:
        """Return for each kind the number of these queries that have a reason of it."""
        kinds = [{one.kind for one in self._known.get(query, ())} for query in queries]
        return {kind: sum(kind in of_query for of_query in kinds) for kind in KINDS}


def _of_operator(operator: OperatorInfo) -> QueryReason:
    kinds: dict[str, ReasonKind] = {LOST: "operator-lost", UNREACHABLE: "no-answer"}
    kinds |= dict.fromkeys(operator_states.SET_ASIDE, "operator-set-aside")
    return QueryReason(kinds.get(operator.state, "operator-waits"), f"{operator.id} at {operator.node}: {operator.reason}")
