"""The newest decisions about operators, as their hosts and the leaders of queries remember them."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from sbon_node.base.events import Bus, MoveDecided
from sbon_protocol.api.adaptation import MOVES, STAYS, MoveDecision, Verdict
from sbon_protocol.api.bounded import MAX_REASON
from sbon_protocol.api.queries import MAX_SHOWN_DECISIONS, OperatorInfo, QueryInfo
from sbon_protocol.api.states import move_states


class DecisionLog:
    """At most ``most`` decisions about an operator, the oldest first."""

    def __init__(self, most: int) -> None:
        self._kept: deque[MoveDecision] = deque(maxlen=most)

    def all(self) -> tuple[MoveDecision, ...]:
        return tuple(self._kept)

    def enter(self, made: MoveDecision) -> bool:
        """Remember a decision; return whether it is new: equal ones in a row are one."""
        last = self._kept[-1] if self._kept else None
        if last is not None and (last.verdict, last.code, last.target) == (STAYS, made.code, made.target):
            self._kept[-1] = replace(made, times=last.times + 1)
            return False
        self._kept.append(made)
        return True

    def failed(self, error: Exception) -> None:
        """Keep with the newest decision why its move was given up."""
        outcome = f"{move_states.GIVEN_UP}: {error}"[:MAX_REASON]
        self._kept[-1] = replace(self._kept[-1], outcome=outcome)


def event_of(query: str, made: MoveDecision) -> Callable[..., MoveDecided]:
    """Return what makes the event of a decision; ``query`` is the name of its query."""
    shared = ("operator", "verdict", "code", "reason", "target", "usage", "usage_there", "cost", "probes")
    return partial(MoveDecided, query=query, **{name: getattr(made, name) for name in shared})


class LeaderDecisions:
    """The newest decisions about each operator of the led queries, at most ``most`` of each, until the leadership ends."""

    def __init__(self, node: str, bus: Bus, wall_ms: Callable[[], int], most: int) -> None:
        self._node, self._bus, self._wall_ms, self._most = node, bus, wall_ms, most
        self._kept: dict[str, dict[str, DecisionLog]] = {}

    def begin(self, query: str) -> None:
        """Remember decisions about a query from now on, until :meth:`forget`."""
        self._kept[query] = {}

    def enter(self, info: QueryInfo, verdict: Verdict, code: str, reason: str, found: Mapping[str, str] | None = None) -> None:
        """Remember and publish the decision about each operator that moves to its node in ``found``, or about all that stay."""
        logs = self._kept.get(info.uid, {})  # Without a leadership, which may have ended, the decision is only published.
        for operator in info.operators:
            target = (found or {}).get(operator.id, "") if verdict == MOVES else ""
            if verdict == MOVES and target in ("", operator.node):
                continue
            made = MoveDecision(
                operator=operator.id,
                node=operator.node,
                leader=self._node,
                at_ms=self._wall_ms(),
                verdict=verdict,
                code=code,
                reason=reason[:MAX_REASON],
                target=target,
            )
            if logs.setdefault(operator.id, DecisionLog(self._most)).enter(made):
                self._bus.publish("placement", event_of(info.id, made))

    def failed(self, query: str, operator: str, error: Exception) -> None:
        """Keep why a move of the newest decision was given up."""
        if (log := self._kept.get(query, {}).get(operator)) is not None:
            log.failed(error)

    def forget(self, query: str) -> None:
        self._kept.pop(query, None)

    def added(self, query: str, operators: Sequence[OperatorInfo]) -> tuple[OperatorInfo, ...]:
        """Return the operators with their hosts' decisions and these, the newest of both, oldest first."""
        logs = self._kept.get(query, {})

        def added(operator: OperatorInfo) -> OperatorInfo:
            decisions = sorted((*operator.decisions, *logs[operator.id].all()), key=lambda one: one.at_ms)
            return replace(operator, decisions=tuple(decisions[-MAX_SHOWN_DECISIONS:]))

        return tuple(added(one) if one.id in logs else one for one in operators)
