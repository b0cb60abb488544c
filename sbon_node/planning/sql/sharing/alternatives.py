"""Alternatives to a plan's operators: their rows computed from running operators of other queries (docs/design.md, section 6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

import structlog
from msgspec.structs import replace

from sbon_node.model.running_computation import RunningComputation
from sbon_node.planning.sql.checks.allowlist import check_fragment
from sbon_node.planning.sql.rewrite.event_time import width_ms
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.sharing.containment import (
    ParsedComputation,
    Residual,
    SharedStream,
    SharedView,
    Wanted,
    read_offer,
    residual,
    through,
)
from sbon_node.planning.sql.stages.assembly import Analyse, PlannedStage
from sbon_node.planning.sql.stages.fragments import fragment_of
from sbon_protocol.api.operators import PlannedInput
from sbon_protocol.api.plan import ContainedOperator, PlannedOperator
from sbon_protocol.errors import SbonError

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
    return replace(
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
