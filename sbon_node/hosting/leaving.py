"""Moves of operators away from this node, as their host sees them after a restart."""

from __future__ import annotations

from typing import Protocol

from sbon_node.hosting.hosted_operator import HostedOperator


class Leaving(Protocol):
    """Moves of operators away from this node, which began before its restart."""

    def resume(self, hosted: HostedOperator) -> bool:
        """Hand over an operator that has moved; return False for any other."""
        ...

    def forget(self, operator: str) -> None:
        """Forget the move of an operator that was claimed, and therefore stays."""
        ...


class NobodyLeaves:
    """No such moves."""

    def resume(self, hosted: HostedOperator) -> bool:
        return False

    def forget(self, operator: str) -> None:
        return


NOBODY_LEAVES = NobodyLeaves()
