"""Stages: a query cut into relations over views, each of which becomes an operator.

Streams feed each view. Filters and projections run beside each source; a join or an aggregate and the SELECT directly above it
are a stage. Stateful relations above an outer join share its stage, because rows without a partner come a batch late. A union is
no stage: its readers take each part as a separate input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import LEFT, OUTER, RIGHT, Aggregate, Input, Join, Relation, Scan, Select, Union
from sbon_node.planning.sql.rewrite.event_time import bounds, lags_ms, optional
from sbon_node.planning.sql.syntax.lexical import clause, refusal
from sbon_protocol.errors import SbonError


@dataclass(frozen=True, slots=True)
class Feed:
    """A stream of a view: all sources of a declared stream, or another stage. ``lag_ms`` is the lag of the view's event time."""

    origin: Scan | Stage
    lag_ms: int


@dataclass(frozen=True, slots=True)
class View:
    """A view of a stage.

    ``event_time`` is the column from which its streams' marker rows are made; empty for a stage without state.
    """

    feeds: tuple[Feed, ...]
    event_time: str


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """An operator, or one operator per source if the stage reads a declared stream.

    The leaves of ``relation`` are :class:`Input`.
    """

    relation: Select
    views: tuple[View, ...]

    @property
    def scan(self) -> Scan | None:
        """The declared stream that the stage reads, if any."""
        origin = self.views[0].feeds[0].origin
        return origin if isinstance(origin, Scan) else None


Instead = Callable[[Select], Select]
"""Maps a SELECT over an aggregate to the SELECT to run: itself, or its decomposed form."""


def cut(query: Select | Union, text: str, instead: Instead = lambda select: select) -> tuple[Stage, ...]:
    """Return the stages whose streams are the query's result.

    Raises :class:`SbonError` for state that would never be released.
    """
    return _Cutter(text, instead).stages(query)


class _Cutter:
    def __init__(self, text: str, instead: Instead) -> None:
        self._text, self._instead = text, instead
        self._known: list[tuple[Select, Stage]] = []

    def stages(self, relation: Select | Union) -> tuple[Stage, ...]:
        """Return a stage for each part of a union. A repeated part has two stages, since a reader takes each stream once."""
        children = relation.children if isinstance(relation, Union) else (relation,)
        stages: list[Stage] = []
        for child in children:
            assert isinstance(child, Select)
            stage = self._stage(child)
            stages.append(replace(stage) if stage in stages else stage)
        return tuple(stages)

    def _stage(self, select: Select) -> Stage:
        """Return the stage of a SELECT; equal SELECTs share a stage."""
        for known, stage in self._known:
            if known == select:
                return stage
        stage = self._made(select)
        self._known.append((select, stage))
        return stage

    def _made(self, select: Select) -> Stage:
        if isinstance(select.child, Scan):
            return Stage(read(select), (View((Feed(select.child, 0),), ""),))
        if isinstance(select.child, Aggregate) and select.child.partial:
            below = select.child.child
            assert isinstance(below, Select)
            assert isinstance(below.child, Scan)
            scan = below.child
            view = View((Feed(scan, 0),), scan.entry.declaration.event_time)
            return Stage(replace(select, child=replace(select.child, child=read(below))), (view,))
        select = self._instead(select)
        views: list[View] = []
        return Stage(replace(select, child=self._stateful(select.child, views)), tuple(views))

    def _stateful(self, relation: Relation, views: list[View]) -> Relation:
        if isinstance(relation, Aggregate):
            return replace(relation, child=self._side(relation.child, self._time_of_groups(relation), views))
        assert isinstance(relation, Join)
        left, right = self._times_of_join(relation)
        return replace(relation, left=self._side(relation.left, left, views), right=self._side(relation.right, right, views))

    def _side(self, relation: Relation, time: str, views: list[View]) -> Relation:
        """Return a view of ``relation``'s streams, or ``relation`` itself if it shares the stage."""
        children = relation.children if isinstance(relation, Union) else (relation,)
        outer = [
            child
            for child in children
            if isinstance(child, Select) and isinstance(child.child, Join) and child.child.kind in OUTER
        ]
        if outer and len(children) > 1:
            join = outer[0].child
            assert isinstance(join, Join)
            hint = "group each part of the UNION by itself"
            raise self._refused("unsupported-union", "an outer join inside of a UNION that is grouped", join.start, hint)
        if outer:
            return replace(outer[0], child=self._stateful(outer[0].child, views))
        assert isinstance(relation, Select | Union)
        stages = self.stages(relation)
        lags = [lags_ms(stage.relation) for stage in stages]
        feeds = tuple(Feed(stage, of[time]) for stage, of in zip(stages, lags, strict=True))
        views.append(View(feeds, time))
        behind = {name: max(0, *(of[name] - of[time] for of in lags)) for name in lags[0] if all(name in of for of in lags)}
        return Input(len(views) - 1, relation.names, behind)

    def _time_of_groups(self, aggregate: Aggregate) -> str:
        lags = lags_ms(aggregate.child)
        if aggregate.window is not None:
            if aggregate.window.time in lags:
                return aggregate.window.time
            raise self._refused("bad-window", "the window is not over the event time", aggregate.start, aggregate.remedy)
        following = [key.expression.name for key in aggregate.keys if isinstance(key.expression, exp.Column)]
        following = [name for name in following if name in lags]
        ending = [name for name in following if name not in optional(aggregate.child)]
        if not ending:
            of_nulls = "the group of rows without a partner would never end"
            message = of_nulls if following else "a stream has no end, so its groups need one"
            raise self._refused("aggregate-without-window", message, aggregate.start, aggregate.remedy)
        return min(ending, key=lambda name: lags[name])

    def _times_of_join(self, join: Join) -> tuple[str, str]:
        if not any(isinstance(condition.unnest(), exp.EQ) and _joins(condition.unnest()) for condition in join.conditions):
            message = "a join needs an equality between a column of each side"
            raise self._refused("join-without-equality", message, join.start, join.remedies[0])
        null = {LEFT: optional(join.left), RIGHT: optional(join.right)}
        closed = [bound for bound in bounds(join) if bound.closed]
        lasting = [bound for bound in closed if bound.left not in null[LEFT] and bound.right not in null[RIGHT]]
        if not lasting:
            reason = "its bound in time is NULL in rows without a partner" if closed else "the join has no bound in time"
            raise self._refused("join-without-bound", f"rows would be kept for ever: {reason}", join.start, join.remedies[1])
        best = min(lasting, key=lambda bound: bound.most_ms - bound.least_ms)
        return best.left, best.right

    def _refused(self, code: str, message: str, start: int, hint: str) -> SbonError:
        return refusal(code, message, self._text, start, offending=clause(self._text, start), hint=hint)


def read(select: Select) -> Select:
    """Return a SELECT over a declared stream as a SELECT over its stage's only view."""
    return replace(select, child=Input(0, select.child.names, lags_ms(select.child)))


def _joins(equality: exp.Expr) -> bool:
    """Return whether the equality's two sides belong to different sides of the join."""
    sides = [{reference.table for reference in side.find_all(exp.Column)} for side in (equality.this, equality.expression)]
    return all(len(side) == 1 for side in sides) and sides[0] != sides[1]
