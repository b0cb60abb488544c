"""DuckDB in place of Spark's executors: SQL of Spark's dialect in, Arrow out, with Spark's type names."""

import atexit
import functools
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from sbon_node.base import extras
from sbon_node.model.schema import to_arrow
from sbon_node.planning.sql.syntax.dialect import VerbatimSpark
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.errors import SbonError

duckdb = extras.duckdb()

KEPT_RESULTS = 4096

_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INTEGER": "int",
    "BIGINT": "bigint",
    "UBIGINT": "bigint",
    "HUGEINT": "bigint",  # a sum of whole numbers
    "FLOAT": "float",
    "DOUBLE": "double",
    "VARCHAR": "string",
    "BLOB": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
}
_CASTS = frozenset(
    ["bigint", "int", "smallint", "tinyint", "double", "float", "string", "boolean", "date", "timestamp", "binary"]
)


class SparkFragment(Spark):
    """Spark's SQL where ``window`` is a function and no keyword."""

    Tokenizer = VerbatimSpark.Tokenizer


def parse(text: str) -> exp.Select:
    """Parse a fragment; raise :class:`SbonError` ``bad-sql``."""
    try:
        tree = sqlglot.parse_one(text, dialect=SparkFragment())
    except SqlglotError as error:
        raise SbonError("bad-sql", str(error).splitlines()[0], where="line 1, column 1") from error
    if not isinstance(tree, exp.Select):
        raise SbonError("bad-sql", f"no SELECT: {text!r}", where="line 1, column 1")
    return tree


def written(tree: exp.Expr) -> str:
    """Return the tree as DuckDB's SQL, every name quoted."""
    return tree.transform(_as_duckdb_has_it).sql(dialect="duckdb", identify=True)


def run(sql: str, tables: Mapping[str, Any], schema: Schema | None = None) -> tuple[Schema, Any]:
    """Run DuckDB's ``sql`` over Arrow tables. Return the schema, which is ``schema`` if given, and the result.

    Schedules of one world run the same batches again and again, so that the newest results are kept. Raises :class:`SbonError`
    ``bad-sql`` if DuckDB rejects the text.
    """
    return _run(sql, schema, tuple((name, _Content(table)) for name, table in tables.items()))


def as_schema(table: Any, schema: Any) -> Any:
    """Return an Arrow table with this schema; most have it already, and a cast costs more than the comparison."""
    return table if table.schema.equals(schema) else table.cast(schema)


class _Content:
    """A table and its bytes, by which equal tables are recognised. A run takes the table, so that kept results hold none."""

    def __init__(self, table: Any) -> None:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write(table)
        self._stream: bytes = out.getvalue().to_pybytes()
        self._table: Any = table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Content) and self._stream == other._stream

    def __hash__(self) -> int:
        return hash(self._stream)

    def take(self) -> Any:
        table, self._table = self._table, None
        return table


@functools.lru_cache(KEPT_RESULTS)
def _run(sql: str, schema: Schema | None, tables: tuple[tuple[str, _Content], ...]) -> tuple[Schema, Any]:
    connection = _connection()
    for name, content in tables:
        connection.register(name, content.take())
    try:
        relation = connection.sql(sql)
        if schema is None:
            kinds = zip(relation.columns, relation.types, strict=True)
            schema = tuple(Column(name, _spark_type(name, str(kind))) for name, kind in kinds)
        return schema, as_schema(relation.to_arrow_table(), to_arrow(schema))
    except (duckdb.Error, pa.ArrowException) as error:
        raise SbonError("bad-sql", str(error).splitlines()[0], where="line 1, column 1") from error
    finally:
        for name, _ in tables:
            connection.unregister(name)


@functools.cache
def _connection() -> Any:
    """Open a connection with one thread, so that equal input gives equal rows in equal order."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone='UTC'")
    atexit.register(_connection.cache_clear)
    return connection


def _spark_type(column: str, kind: str) -> str:
    decimal = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", kind)
    if decimal is not None:
        return f"decimal({decimal[1]},{decimal[2]})"
    if kind not in _TYPES:
        raise SbonError("unsupported-type", f"the simulated engine knows no {kind}", where=f"column {column}")
    return _TYPES[kind]


def _as_duckdb_has_it(node: exp.Expr) -> exp.Expr:
    """Translate nodes that sqlglot leaves under Spark's name, or with a type that Spark does not give them."""
    if isinstance(node, exp.Floor | exp.Ceil) and not isinstance(node.parent, exp.Cast):
        return exp.cast(node, "bigint")
    if isinstance(node, exp.Anonymous):
        name, arguments = node.name.lower(), node.expressions
        if name in _CASTS and len(arguments) == 1:
            return exp.cast(arguments[0], name, dialect="spark")
        if name == "pmod":
            a, b = (f"({argument.sql(dialect='duckdb', identify=True)})" for argument in arguments)
            return sqlglot.parse_one(f"(({a} % {b}) + {b}) % {b}", dialect="duckdb")
        if name in ("try_sum", "try_avg"):
            return exp.Anonymous(this=name.removeprefix("try_"), expressions=arguments)
    return node
