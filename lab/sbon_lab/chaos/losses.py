"""Nodes whose disk the queries can lose. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sbon.model import QueryInfo
from sbon_protocol.api.states.operator_states import RUNNING

LEAST_COPIES = 3
"""Copies of a record, of which one may be lost."""


def why_not_lost(queries: Iterable[QueryInfo], node: str) -> str:
    """Return why the disk of a node cannot be lost while these queries live; empty if it can."""
    return next((why for info in queries if (why := _why_not(info, node))), "")


def _why_not(info: QueryInfo, node: str) -> str:
    if info.survival is None:
        return f"{info.id} is {info.state}"
    if info.stale:
        return f"{info.id} is not confirmed by a majority"
    for loss in info.survival.losses:
        if loss.node == node:
            return f"{info.id} would lose {loss.part} {loss.name} ({loss.why})"
    if node in info.acceptors and len(info.acceptors) < LEAST_COPIES:
        return f"{info.id} has its record on {len(info.acceptors)} nodes"
    for operator in info.operators:
        # With the node the operator would be lost if its host were lost already, or has just been.
        if operator.backup is not None and operator.backup.node == node and operator.state != RUNNING:
            return f"{operator.id} is {operator.state}, and {node} its backup"
    return ""
