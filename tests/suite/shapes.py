"""Shapes of stages, and choices of queries: a few with each kind of operator, and some more with all shapes."""

from __future__ import annotations

from collections.abc import Sequence

from sbon_node.planning.sql.relations.logical import Aggregate, Join, Relation, Select, Union
from sbon_node.planning.sql.stages.cut import Stage

KINDS = ("aggregate_twice", "join_null_keys", "nexmark_q5", "session_hosts", "union_aggregated")
"""Each kind of operator with few operators in all; ``make test`` runs a part of them on Spark."""
SAMPLE = (
    "cte_join_aggregate",
    "exists_twice",
    "join_full_on_key",
    "join_left_twice",
    "join_null_keys",
    "join_right_on_key",
    "nexmark_q5",
    "nexmark_q7",
    "outer_join_aggregated_twice",
    "session_hosts",
    "truncated_hour",
    "union_aggregated",
    "union_joined",
)
"""As few as there can be; ``test_suite`` says which shape is missing. ``make test`` runs a part of them on Spark."""


def shapes(stages: Sequence[Stage]) -> set[str]:
    """Return the shapes of these stages and of all that they read."""
    found: set[str] = set()
    for stage in stages:
        origins = [[feed.origin for feed in view.feeds] for view in stage.views]
        below = [[one for one in view if isinstance(one, Stage)] for view in origins]
        inputs = " and ".join(_input(view) for view in below)
        found.add(f"{_shape(stage.relation)} of {inputs}")
        for view in below:
            found |= shapes(view)
    return found


def _shape(relation: Relation) -> str:
    """Return the operations with state and their nesting; Spark's analyser covers expressions."""
    if isinstance(relation, Select):
        return _shape(relation.child)
    if isinstance(relation, Aggregate):
        return f"{_window(relation)} ({_shape(relation.child)})"
    if isinstance(relation, Join):
        return f"{relation.kind} join ({_shape(relation.left)}, {_shape(relation.right)})"
    return "rows"


def _window(aggregate: Aggregate) -> str:
    window = aggregate.window
    if window is None:
        return "keys"
    if window.kind == "session_window":
        return "session"
    return "tumbling" if window.slide_ms == window.size_ms else "sliding"


def _input(stages: Sequence[Stage]) -> str:
    """A view: of declared rows, of another stage's, or of several."""
    if not stages:
        return "a stream"
    kinds = {"results" if isinstance(_child(stage.relation), Aggregate | Join) else "rows" for stage in stages}
    return ("a union of " if len(stages) > 1 else "") + " and ".join(sorted(kinds))


def _child(select: Select) -> Relation:
    assert not isinstance(select.child, Union)
    return select.child
