"""A stage's relation over the sampled rows of its views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import Aggregate, Input, Join, Relation, Select
from sbon_node.planning.sql.sampling.groups import Groups, grouped
from sbon_node.planning.sql.sampling.pairs import Pairs, paired
from sbon_node.planning.sql.sampling.rows import SampledRows, selected


@dataclass(slots=True)
class SampledStage:
    """Estimates from sampled rows for each part of a relation, by the part's identity; ``rows`` are those of its output."""

    rows: SampledRows | None = None
    selects: dict[int, tuple[float, list[exp.Expr]]] = field(default_factory=dict)
    """Share of the rows that pass a SELECT, and its conditions that were not evaluated."""
    aggregates: dict[int, Groups] = field(default_factory=dict)
    joins: dict[int, Pairs] = field(default_factory=dict)


def sampled_stage(relation: Select, views: Sequence[SampledRows | None]) -> SampledStage:
    """Run a stage over sampled rows, as far as they go."""
    stage = SampledStage()
    stage.rows = _rows(relation, views, stage)
    return stage


def _rows(relation: Relation, views: Sequence[SampledRows | None], stage: SampledStage) -> SampledRows | None:
    match relation:
        case Input(view):
            return views[view]
        case Select(child):
            below = _rows(child, views, stage)
            if below is None or not below.telling:
                return None
            rows, share, unknown = selected(below, relation)
            stage.selects[id(relation)] = share, unknown
            return rows
        case Aggregate(child):
            below = _rows(child, views, stage)
            groups = grouped(below, relation) if below is not None and below.telling else None
            if groups is None:
                return None
            stage.aggregates[id(relation)] = groups
            return groups.rows
        case Join(_, left, right):
            sides = _rows(left, views, stage), _rows(right, views, stage)
            if sides[0] is None or sides[1] is None or not (sides[0].telling and sides[1].telling):
                return None
            pairs = paired(sides[0], sides[1], relation)
            if pairs is None:
                return None
            stage.joins[id(relation)] = pairs
            return pairs.rows
    raise TypeError(f"no part of a stage: {relation!r}")
