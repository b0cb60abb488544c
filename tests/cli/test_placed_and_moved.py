"""``sbon query show`` gives the reason of an operator's placement only while the operator is there."""

from __future__ import annotations

import pytest

from sbon.model import Assignment, OperatorInfo
from sbon_cli.commands.queries.query import why_there

NEAR = Assignment(operator="q.b0", node="london", reason="nearest to its virtual coordinate")


@pytest.mark.parametrize(
    "node, placed, why",
    [
        ("london", NEAR, NEAR.reason),
        ("", NEAR, NEAR.reason),
        ("paris", NEAR, "it was moved here after it had been placed at london"),
        ("paris", None, ""),
    ],
)
def test_the_reason_tells_of_a_move(node: str, placed: Assignment | None, why: str) -> None:
    assert why_there(OperatorInfo(id="q.b0", node=node, fragment="SELECT 1", state="running"), placed) == why
