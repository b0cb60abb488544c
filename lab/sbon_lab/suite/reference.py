"""DuckDB's answers to the suite's queries, over the files of the streams; and the comparison of rows."""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from sbon_lab.suite.cases import Case
from sbon_lab.suite.streams import SuiteStream
from sbon_node.base import extras

Row = tuple[Any, ...]

_TYPES = {"string": "VARCHAR", "timestamp": "TIMESTAMP", "int": "INTEGER"}
_READERS = {
    ".csv": "read_csv({files}, header = true, nullstr = '', allow_quoted_nulls = false, quote = '\"', columns = {{{columns}}})",
    ".ndjson": "read_json({files}, format = 'newline_delimited', columns = {{{columns}}})",
    ".parquet": "read_parquet({files})",
}


class Reference:
    """A database with the streams as tables; times are UTC, without a zone."""

    def __init__(self, streams: Mapping[str, SuiteStream]) -> None:
        self._database = extras.duckdb().connect()
        self._database.execute("SET TimeZone = 'UTC'")
        for name, stream in streams.items():
            types = {field.name: _TYPES.get(field.type, field.type.upper()) for field in stream.declaration.schema}
            columns = ", ".join(f"'{column}': '{type_}'" for column, type_ in types.items())
            files = [str(file) for file in stream.files.values()]
            reader = _READERS[Path(files[0]).suffix].format(files=files, columns=columns)
            selected = ", ".join(f"{column}::{type_} AS {column}" for column, type_ in types.items())
            self._database.execute(f"CREATE TABLE {name} AS SELECT {selected} FROM {reader}")

    def answer(self, case: Case) -> list[Row]:
        rows: list[Row] = self._database.sql(case.reference).fetchall()
        return rows


def stored(path: Path) -> list[Row]:
    """Return the rows of a parquet file sink, which makes no file without rows."""
    if not any(path.glob("*.parquet")):
        return []
    database = extras.duckdb().connect()
    database.execute("SET TimeZone = 'UTC'")
    rows: list[Row] = database.sql(f"FROM read_parquet('{path}/*.parquet')").fetchall()
    return rows


def differences(rows: Iterable[Row], expected: Iterable[Row], most: int = 5) -> list[str]:
    """Return at most ``most`` differences of two multisets of rows; numbers may differ by a billionth of their value."""
    got_rows, expected_rows = sorted(map(plain, rows), key=_order), sorted(map(plain, expected), key=_order)
    lines = [f"{len(got_rows)} rows, {len(expected_rows)} expected"] if len(got_rows) != len(expected_rows) else []
    different = [pair for pair in zip(got_rows, expected_rows, strict=False) if not _same(*pair)]
    return [*lines, *(f"{row}, expected {other}" for row, other in different)][:most]


def plain(row: Row) -> Row:
    """Return a row with values that equal rows of Spark and DuckDB share."""
    return tuple(_value(value) for value in row)


def _value(value: Any) -> Any:
    match value:
        case bool():
            return str(value)
        case int() | Decimal():
            return float(value) if -(2**53) < value < 2**53 else str(value)
        case datetime():
            return str(value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value)
        case date():
            return str(value)
    return value


def _order(row: Row) -> tuple[Any, ...]:
    """Return a sort key with texts first, so that a small error in a number moves no row."""
    texts = [("" if value is None else f"'{value}") for value in row if not isinstance(value, float)]
    return (texts, [value for value in row if isinstance(value, float)])


def _same(row: Row, other: Row) -> bool:
    if len(row) != len(other):
        return False
    return all(_equal(value, two) for value, two in zip(row, other, strict=True))


def _equal(value: Any, two: Any) -> bool:
    if isinstance(value, float) and isinstance(two, float):
        return math.isclose(value, two, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(value) and math.isnan(two))
    return bool(value == two)
