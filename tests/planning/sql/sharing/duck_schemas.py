"""Schemas of stages by DuckDB, whose types have other names."""

from __future__ import annotations

from collections.abc import Callable

from sbon_node.planning.sql.stages.cut import Stage
from sbon_protocol.api.columns import Column, Schema
from tests.planning.sql.duck import Duck, sql_of_stage

_TYPES = {
    "INTEGER": "int", "BIGINT": "bigint", "HUGEINT": "bigint", "DOUBLE": "double", "VARCHAR": "string", "BOOLEAN": "boolean",
    "TIMESTAMP WITH TIME ZONE": "timestamp", "DATE": "date", "TIMESTAMP": "timestamp",
}  # fmt: skip


def schemas_of(duck: Duck) -> Callable[[Stage], Schema]:
    """Return how to ask for the schema of a stage's output, which is asked for once."""
    known: dict[Stage, Schema] = {}

    def schema_of(stage: Stage) -> Schema:
        if stage not in known:
            known[stage] = tuple(Column(name, _TYPES[type_]) for name, type_ in duck.types(sql_of_stage(stage)))
        return known[stage]

    return schema_of
