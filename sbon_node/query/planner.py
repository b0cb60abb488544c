"""From a user's SQL to a plan: one stateless operator beside each physical source of the stream.

A query over a logical stream is expanded to a branch for each of its physical sources, as NebulaStream does (logical source
expansion); the sink takes every branch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from sqlglot import exp

from sbon_node.engine.interface import Schema
from sbon_node.errors import SbonError
from sbon_node.query.allowlist import check_fragment
from sbon_node.query.catalog import CatalogEntry
from sbon_node.query.estimate import needs_of, output_rate
from sbon_node.query.plan import Plan, PlannedOperator, PlannedSource, Rate
from sbon_node.query.schema import check_schema
from sbon_node.query.settings import QuerySettings
from sbon_node.query.signature import signature
from sbon_node.query.sql import SelectQuery, no_sources, read_query

Analyse = Callable[[str, tuple[Schema, ...]], Awaitable[Schema]]
"""Fragment and schemas of its inputs to the schema of its output; raises :class:`SbonError`."""


async def plan_query(
    text: str,
    catalog: Mapping[str, CatalogEntry],
    query_id: str,
    analyse: Analyse,
    settings: QuerySettings | None = None,
) -> Plan:
    """Plans ``text`` over the streams of ``catalog``; operators are named ``<query_id>.b0``, ``.b1`` and so on.

    Raises :class:`SbonError` with line, column, the offending text and a hint, for all that is not one SELECT of expressions
    over one stream with at most a WHERE.
    """
    settings = settings or QuerySettings()
    query = read_query(text, catalog, settings)
    declaration = query.entry.declaration
    if not query.entry.sources:
        raise no_sources(query.entry)
    fragment = query.fragment()
    check_fragment(fragment, 1)
    schema = await analyse(fragment, (declaration.schema,))
    _check_output(schema)
    sources = tuple(
        PlannedSource(
            source=source,
            schema=declaration.schema,
            rate=Rate(rows_s=source.rows_s, bytes_s=source.rows_s * source.row_bytes),
        )
        for source in sorted(query.entry.sources, key=lambda one: one.name)
    )
    operators = tuple(
        _branch(f"{query_id}.b{number}", fragment, source, schema, query.condition, settings)
        for number, source in enumerate(sources)
    )
    return Plan(
        text=text,
        sources=sources,
        operators=operators,
        outputs=tuple(operator.id for operator in operators),
        schema=schema,
        event_time=_kept_event_time(query),
    )


def _branch(
    name: str, fragment: str, source: PlannedSource, schema: Schema, condition: exp.Expr | None, settings: QuerySettings
) -> PlannedOperator:
    rate = output_rate(source.rate, source.schema, schema, condition)
    inputs = (source.source.id,)
    return PlannedOperator(
        id=name,
        fragment=fragment,
        inputs=inputs,
        input_schemas=(source.schema,),
        schema=schema,
        rate=rate,
        needs=needs_of(source.rate, rate),
        signature=signature(fragment, inputs),
        partitioned=source.rate.rows_s >= settings.partitioned_rows_s,
    )


def _check_output(schema: Schema) -> None:
    """What frames and sinks can carry: arrays and intervals are for use inside an expression."""
    try:
        check_schema(schema)
    except SbonError as error:
        hint = "cast it, or take an element of it; " + error.hint if error.code == "bad-type" else error.hint
        raise SbonError("unsupported-output", error.message, where=error.where, hint=hint) from error


def _kept_event_time(query: SelectQuery) -> str:
    """The output that is the stream's event time unchanged, or nothing."""
    for one in query.select.expressions:
        bare = one.unalias()
        if isinstance(bare, exp.Column) and bare.name == query.entry.declaration.event_time:
            return str(one.alias_or_name)
    return ""
