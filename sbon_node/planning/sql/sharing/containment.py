"""Reuse by containment: the output of a stage computed from the output of another query's operator (docs/design.md, section 6).

A *residual* is the relation over the operator's output that gives exactly the stage's rows: the conditions, columns and groups
that are left to do. It is sound before complete: without a proof there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, product

import msgspec
import structlog
from sqlglot import exp

from sbon_node.model.running_computation import RunningComputation
from sbon_node.planning.sql.checks.allowlist import check_fragment
from sbon_node.planning.sql.relations.logical import Aggregate, Input, Output, Relation, Select, over
from sbon_node.planning.sql.rewrite.event_time import lags_ms, width_ms
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.sharing.groups import Groups, are_same, missing_below, on_keys, rolled_up
from sbon_node.planning.sql.sharing.implication import Facts, Failures, missing
from sbon_node.planning.sql.sharing.normal_form import NotProvable, Rows, View, by_text, computed, named_column, rows_of
from sbon_node.planning.sql.sharing.reading import relation_of
from sbon_node.planning.sql.stages.assembly import Analyse, PlannedStage
from sbon_node.planning.sql.stages.fragments import fragment_of
from sbon_node.planning.sql.stages.signature import signature
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OnError, PlannedInput
from sbon_protocol.api.plan import ContainedOperator, PlannedOperator
from sbon_protocol.errors import SbonError


@dataclass(frozen=True, slots=True)
class SharedStream:
    """A stream by its signature; ``lags_ms`` has the lags of its columns that follow its watermark, by their positions."""

    signature: str
    lags_ms: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class SharedView:
    """The streams of a view, in any order, and their common schema."""

    streams: tuple[SharedStream, ...]
    schema: Schema

    @property
    def signatures(self) -> tuple[str, ...]:
        return tuple(sorted(stream.signature for stream in self.streams))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A stage to compute, and its views; ``lags_ms`` are those that the readers of its output count on."""

    relation: Select
    views: tuple[SharedView, ...]
    lags_ms: Mapping[str, int]
    on_error: OnError = "fail"

    @staticmethod
    def of(relation: Select, views: Sequence[SharedView], on_error: OnError = "fail") -> Wanted:
        return Wanted(relation, tuple(views), lags_ms(relation), on_error)


@dataclass(frozen=True, slots=True)
class ParsedComputation:
    """An operator whose fragment was read and checked.

    Its views have schemas, signatures, the column of the event time (empty without state), and the lag of each input.
    """

    relation: Select
    schemas: tuple[Schema, ...]
    streams: tuple[tuple[str, ...], ...]
    event_times: tuple[str, ...]
    lags_ms: tuple[tuple[int, ...], ...]
    schema: Schema
    signature: str


@dataclass(frozen=True, slots=True)
class Residual:
    """The wanted rows as a relation over view 0, the output of the offered operator.

    ``event_time`` and ``lag_ms`` are those of its only input; the event time is empty if it keeps no state. Readers of the wanted
    output must add ``later_ms`` to the lag that they count on. Event time spends at most ``width_ms`` in the offered operator and
    the residual together. ``source`` is the offered output as a stream.
    """

    relation: Select
    event_time: str
    lag_ms: int
    later_ms: int
    width_ms: int
    source: SharedView

    @property
    def has_state(self) -> bool:
        return isinstance(self.relation.child, Aggregate)


@lru_cache(maxsize=256)
def read_offer(offer: RunningComputation, settings: QuerySettings | None = None) -> ParsedComputation | None:
    """Read an operator that a host offers; None if only equal relations may share it, or its description is not sound.

    Rows that an operator skips, or columns that it makes NULL, depend on all of its expressions, and groups of a batch on its
    batches. The fragment passes the allow-list and its bounds. Those read last are kept: new queries are offered mostly the same.
    """
    computation = offer.computation
    if computation.on_error != "fail" or computation.groups_per_batch or len(offer.inputs) != len(computation.inputs):
        return None
    views = sorted({spec.view for spec in computation.inputs})
    if not views or views != list(range(len(views))):
        return None
    of_view = [[pair for pair in zip(computation.inputs, offer.inputs, strict=True) if pair[0].view == view] for view in views]
    if any(len({(spec.schema, spec.event_time) for spec, _ in pairs}) != 1 for pairs in of_view):
        return None
    schemas = tuple(pairs[0][0].schema for pairs in of_view)
    relation = relation_of(computation.fragment, schemas, settings)
    if relation is None or relation.names != tuple(field.name for field in computation.schema):
        return None
    if isinstance(relation.child, Aggregate) and not computation.has_state:
        return None
    return ParsedComputation(
        relation=relation,
        schemas=schemas,
        streams=tuple(tuple(stream for _, stream in pairs) for pairs in of_view),
        event_times=tuple(pairs[0][0].event_time for pairs in of_view),
        lags_ms=tuple(tuple(spec.lag_ms for spec, _ in pairs) for pairs in of_view),
        schema=computation.schema,
        signature=signature(relation, [[stream for _, stream in pairs] for pairs in of_view]),
    )


def residual(wanted: Wanted, offered: ParsedComputation) -> Residual | None:
    """Return how to compute the wanted rows from the offered ones; None if that is not provable."""
    if wanted.on_error != "fail":
        return None
    try:
        return _residual(wanted, offered)
    except NotProvable:
        return None


def through(wanted: Wanted, residuals: Mapping[int, Sequence[Residual]]) -> Wanted | None:
    """Return the stage over the sources of residuals that feed its views; None if they keep state or differ.

    So a stage can be compared with operators over streams from which its own inputs are computed.
    """
    views = list(wanted.views)
    put: dict[int, Select] = {}
    for view, of_streams in residuals.items():
        first = of_streams[0]
        same = all(one.relation == first.relation and one.source.schema == first.source.schema for one in of_streams)
        if not same or any(one.has_state for one in of_streams) or len(of_streams) != len(views[view].streams):
            return None
        views[view] = SharedView(tuple(one.source.streams[0] for one in of_streams), first.source.schema)
        put[view] = first.relation
    relation = _put(wanted.relation, put)
    assert isinstance(relation, Select)
    return replace(wanted, relation=relation, views=tuple(views))


def _put(relation: Relation, selects: Mapping[int, Select]) -> Relation:
    """Return the relation with SELECTs in place of views. Their names become those that the relation reads."""
    if not isinstance(relation, Input):
        return over(relation, lambda child: _put(child, selects))
    if relation.view not in selects:
        return relation
    select = selects[relation.view]
    assert isinstance(select.child, Input)
    outputs = tuple(Output(name, output.expression) for name, output in zip(relation.names, select.outputs, strict=True))
    return Select(replace(select.child, view=relation.view), outputs, select.conditions)


# -- proof --------------------------------------------------------------------------------------------------------------------


def _residual(wanted: Wanted, offered: ParsedComputation) -> Residual:
    views = [View(",".join(view.signatures), view.schema) for view in wanted.views]
    offered_views = [
        View(",".join(sorted(streams)), schema) for streams, schema in zip(offered.streams, offered.schemas, strict=True)
    ]
    _check_types(views, offered_views)
    following = _with_lags(offered.relation, _lags_of_views(wanted, offered))
    assert isinstance(following, Select)
    lags = lags_ms(following)
    names = tuple(field.name for field in offered.schema)
    source = SharedView(
        (SharedStream(offered.signature, {at: lags[name] for at, name in enumerate(names) if name in lags}),), offered.schema
    )
    relation = _relation(wanted.relation, offered, views, offered_views, Input(0, names, lags))
    time = _event_time(relation, lags)
    lag_ms = lags[time] if time else 0
    behind = {name: max(0, lag - lag_ms) for name, lag in lags.items()} if time else lags
    residual_relation = _with_lags(relation, [behind])
    assert isinstance(residual_relation, Select)
    return Residual(
        relation=residual_relation,
        event_time=time,
        lag_ms=lag_ms,
        later_ms=_later_ms(wanted, residual_relation),
        width_ms=width_ms(following) + width_ms(residual_relation),
        source=source,
    )


def _relation(
    wanted: Select, offered: ParsedComputation, views: Sequence[View], offered_views: Sequence[View], source: Input
) -> Select:
    if isinstance(wanted.child, Aggregate) != isinstance(offered.relation.child, Aggregate):
        raise NotProvable
    if not isinstance(wanted.child, Aggregate):
        return _selected(wanted, rows_of(wanted, views), rows_of(offered.relation, offered_views), source)
    groups, offered_groups = Groups.of(wanted, views), Groups.of(offered.relation, offered_views)
    below = missing_below(groups, offered_groups)
    of_offered = offered_groups.selected()
    if are_same(groups, offered_groups):
        of_wanted = groups.selected()
        of_wanted = replace(of_wanted, conditions=(*on_keys(below, groups), *of_wanted.conditions))
        return _selected(wanted, of_wanted, of_offered, source)
    if not Failures((), of_offered.types).none_in([*of_offered.columns.values(), *of_offered.conditions]):
        raise NotProvable
    return rolled_up(groups, offered_groups, below, source, offered.schema)


def _selected(wanted: Select, rows: Rows, offered_rows: Rows, source: Input) -> Select:
    """Return the wanted rows as a SELECT over the offered ones, which have the same base."""
    if rows.base != offered_rows.base:
        raise NotProvable
    facts = Facts(rows.conditions, rows.types)
    if not all(facts.imply(condition) for condition in offered_rows.conditions if isinstance(condition.unnest(), exp.EQ)):
        raise NotProvable
    equal = offered_rows.equal_columns()

    def first_of_equals(node: exp.Expr) -> exp.Expr:
        return named_column(equal[node.name]) if isinstance(node, exp.Column) and node.name in equal else node

    rows, offered_rows = rows.transformed(first_of_equals), offered_rows.transformed(first_of_equals)
    conditions = missing(rows.conditions, offered_rows.conditions, rows.types)
    if conditions is None:
        raise NotProvable
    own = [] if conditions else [*rows.columns.values(), *rows.conditions]
    if not Failures(own, rows.types).none_in([*offered_rows.columns.values(), *offered_rows.conditions]):
        raise NotProvable
    known = by_text(offered_rows.columns.items())
    outputs = tuple(Output(output.name, computed(rows.columns[output.name], known)) for output in wanted.outputs)
    return Select(source, outputs, tuple(computed(condition, known) for condition in conditions))


def _check_types(views: Sequence[View], offered: Sequence[View]) -> None:
    """Check that equal streams have equal types: the names of their columns do not matter."""
    types = {view.streams: [field.type for field in view.schema] for view in views}
    if any(types.get(view.streams) != [field.type for field in view.schema] for view in offered):
        raise NotProvable


# -- event time ---------------------------------------------------------------------------------------------------------------


def _lags_of_views(wanted: Wanted, offered: ParsedComputation) -> list[dict[str, int]]:
    """Return the lags of the offered operator's views behind its watermark, which is that of its inputs less their lags."""
    known = {stream.signature: stream.lags_ms for view in wanted.views for stream in view.streams}
    lags_of_views: list[dict[str, int]] = []
    for schema, streams, time, own in zip(offered.schemas, offered.streams, offered.event_times, offered.lags_ms, strict=True):
        behind: dict[str, int] = {}
        for at, field in enumerate(schema):
            lags = [(known[stream].get(at), lag_ms) for stream, lag_ms in zip(streams, own, strict=True)]
            least = [max(0, lag - lag_ms) for lag, lag_ms in lags if lag is not None]
            if len(least) == len(lags):
                behind[field.name] = max(least)
        if time and behind.get(time) != 0:
            raise NotProvable
        lags_of_views.append(behind)
    return lags_of_views


def _with_lags(relation: Relation, lags: Sequence[Mapping[str, int]]) -> Relation:
    if isinstance(relation, Input):
        return replace(relation, lags_ms=lags[relation.view])
    return over(relation, lambda child: _with_lags(child, lags))


def _event_time(relation: Select, lags: Mapping[str, int]) -> str:
    """Return the offered column by whose times the residual releases its groups; empty if it has none."""
    groups = relation.child
    if not isinstance(groups, Aggregate):
        return ""
    assert isinstance(groups.child, Select)
    made_of = {output.name: output.expression for output in groups.child.outputs}
    times = [groups.window.time] if groups.window is not None else [key.expression.name for key in groups.keys]
    following = [made_of[time].name for time in times if isinstance(made_of[time], exp.Column) and made_of[time].name in lags]
    if not following:
        raise NotProvable
    return min(following, key=lambda name: lags[name])


def _later_ms(wanted: Wanted, relation: Select) -> int:
    """Return how much further the columns that follow may lag than in the wanted stage."""
    lags = lags_ms(relation)
    if not wanted.lags_ms.keys() <= lags.keys():
        raise NotProvable
    return max((lags[name] - lag_ms for name, lag_ms in wanted.lags_ms.items()), default=0)


# -- Alternatives to a plan's operators, from running operators of other queries ---------------------------------------


log = structlog.get_logger()

MOST_ALTERNATIVES = 4
"""Most alternatives of one operator: each costs an analysis by the engine."""
MOST_COMBINATIONS = 8
"""Most assignments of an offered operator's views to those of a stage."""


@dataclass(frozen=True, slots=True)
class _Derivation:
    """How a stage is computed from the output of an offered operator."""

    residual: Residual
    offer: RunningComputation


async def alternatives(
    stages: Sequence[PlannedStage], offers: Iterable[RunningComputation], analyse: Analyse, settings: QuerySettings
) -> tuple[ContainedOperator, ...]:
    """Return alternatives to the operators of ``stages``, in topological order, from offered ones that contain their rows.

    Operators of equal signature are left out, and offers whose signature is not that of their fragment and inputs.
    """
    read = [
        (offer, of) for offer in offers if (of := read_offer(offer, settings)) and of.signature == offer.computation.signature
    ]
    known: dict[str, list[_Derivation]] = {}
    found: list[ContainedOperator] = []
    for stage in stages:
        computations = _computations(stage, read, known)
        known[stage.operator.id] = computations
        for one in computations:
            operator = await _operator(stage, one, analyse, settings)
            if operator is not None:
                longer_ms = max(0, one.residual.width_ms - width_ms(stage.relation))
                later_ms = one.residual.later_ms
                found.append(
                    ContainedOperator(operator=operator, offered=one.offer.computation.id, longer_ms=longer_ms, later_ms=later_ms)
                )
    return tuple(found)


def _computations(
    stage: PlannedStage,
    offers: Sequence[tuple[RunningComputation, ParsedComputation]],
    known: Mapping[str, Sequence[_Derivation]],
) -> list[_Derivation]:
    views = [
        SharedView(tuple(SharedStream(one.signature, one.lags_ms) for one in streams), streams[0].schema)
        for streams in stage.views
    ]
    plain = Wanted.of(stage.relation, views, stage.operator.on_error)
    computations: list[_Derivation] = []
    for offer, offered in offers:
        if offered.signature == stage.operator.signature:
            continue
        over = islice(_over_inputs(plain, stage, offered, known), MOST_COMBINATIONS)
        one = next((one for wanted in over if (one := residual(wanted, offered)) is not None), None)
        if one is not None:
            computations.append(_Derivation(one, offer))
            if len(computations) == MOST_ALTERNATIVES:
                break
    return computations


def _over_inputs(
    plain: Wanted, stage: PlannedStage, offered: ParsedComputation, known: Mapping[str, Sequence[_Derivation]]
) -> Iterator[Wanted]:
    """Return the stage over the offered operator's inputs, wherever its own can be computed from these."""
    options: list[list[list[Residual] | None]] = []
    for view, streams in zip(plain.views, stage.views, strict=True):
        fitting: list[list[Residual] | None] = []
        for signatures in dict.fromkeys(tuple(sorted(of_view)) for of_view in offered.streams):
            below = [_over_any(signatures, known.get(stream.id, ())) for stream in streams]
            if view.signatures == signatures:
                fitting.append(None)
            elif (residuals := [one for one in below if one is not None]) and len(residuals) == len(below):
                fitting.append(residuals)
        options.append(fitting)
    for combination in product(*options):
        residuals_of = {number: of_view for number, of_view in enumerate(combination) if of_view is not None}
        wanted = through(plain, residuals_of) if residuals_of else plain
        if wanted is not None:
            yield wanted


def _over_any(signatures: Collection[str], computations: Iterable[_Derivation]) -> Residual | None:
    """Return the first residual over a stream of one of the signatures."""
    return next((one.residual for one in computations if one.residual.source.streams[0].signature in signatures), None)


async def _operator(
    stage: PlannedStage, derivation: _Derivation, analyse: Analyse, settings: QuerySettings
) -> PlannedOperator | None:
    """Return the stage's operator as the residual; None if the engine gives its columns other types."""
    one, offered = derivation.residual, derivation.offer.computation
    fragment = fragment_of(one.relation)
    try:
        check_fragment(fragment, 1, settings)
        schema = await analyse(fragment, (one.source.schema,))
    except SbonError as error:
        log.info("residual-refused", operator=stage.operator.id, offered=offered.id, code=error.code, reason=str(error))
        return None
    if schema != stage.operator.schema:
        return None
    source = PlannedInput(
        stream=offered.id, schema=one.source.schema, event_time=one.event_time, lag_ms=one.lag_ms, by_position=True
    )
    return msgspec.structs.replace(
        stage.operator,
        fragment=fragment,
        inputs=(source,),
        buckets=(),
        blocks=False,
        groups_per_batch=False,
        state_provider=stage.operator.state_provider if one.has_state else "hdfs",
        signature="" if one.later_ms else stage.operator.signature,
        residual=True,
    )
