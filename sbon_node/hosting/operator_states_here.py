"""States of this node's operators, with their reasons."""

from __future__ import annotations

from sbon_node.model.states.operator_states import LIFECYCLE, SET_ASIDE, OperatorState


class HostedStates:
    """The latest state and reason of each operator, by id."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[OperatorState, str]] = {}

    def begin(self, operator: str, reason: str = "") -> None:
        self._states[operator] = (LIFECYCLE.initial, reason)

    def enter(self, operator: str, state: OperatorState, reason: str) -> None:
        """Change the state; raise :class:`BrokenInvariantError` for a forbidden transition."""
        before, _ = self.of(operator)
        LIFECYCLE.check(before, state, operator)
        self._states[operator] = (state, reason)

    def of(self, operator: str) -> tuple[OperatorState, str]:
        return self._states.get(operator, (LIFECYCLE.initial, ""))

    def forget(self, operator: str) -> None:
        self._states.pop(operator, None)

    def waiting(self) -> list[str]:
        """Return operators that wait for a repair, with the reason; operators that only wait for rows are left out."""
        return [f"{one}: {why}" for one, (state, why) in sorted(self._states.items()) if why and state not in SET_ASIDE]
