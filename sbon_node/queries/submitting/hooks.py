"""The hook of submissions, for a strategy that asks and reserves by messages of its own between nodes."""

from collections.abc import Collection
from typing import Protocol

from sbon_node.placement.strategies.registry import Strategy
from sbon_protocol.api.adaptation import Adapt
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.queries import QuerySpec


class SubmissionHook(Protocol):
    """Part of a strategy in submissions: it places queries, and may choose the running operators that they read."""

    @property
    def strategy(self) -> str:
        """The name of the strategy instead of which :attr:`place` is taken."""
        ...

    @property
    def place(self) -> Strategy:
        """Places the query, and may reserve what it chooses."""
        ...

    def chooses(self, spec: QuerySpec, adapt: Adapt) -> bool:
        """Return whether it chooses which equal operators the query reads."""
        ...

    async def shared(
        self,
        plan: Plan,
        spec: QuerySpec,
        consumer: str,
        without: Collection[str] = (),
        *,
        silent: frozenset[str] = frozenset(),
        sink_follows: bool = False,
    ) -> tuple[Plan, Strategy]:
        """Return the plan with running operators in place of its own where that pays, and the strategy that places the rest.

        Nothing is referred to yet. Operators ``without`` are left out. ``silent`` hosts get no operators.
        """
        ...
