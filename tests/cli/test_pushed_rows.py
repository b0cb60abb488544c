"""Rows of programs as they are posted: of dicts and of tables of other libraries, read as the node reads them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sbon import SbonError
from sbon.endpoints import push_rows
from sbon_node.connectors.formats.text_format import text_format

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("text", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("m", pa.decimal128(38, 8)),
    ]
)
ROWS = [
    {
        "ts": datetime(2026, 3, 2, 9, 0, 0, 123456, UTC),
        "n": 2**63 - 1,
        "x": 0.1,
        "text": 'nöte "\n',
        "b": True,
        "d": date(2024, 2, 29),
        "m": Decimal("123456789012345678901234567890.12345678"),
    },
    {"ts": datetime(1969, 12, 31, tzinfo=UTC), "n": None, "x": None, "text": None, "b": None, "d": None, "m": None},
]
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)


def frame() -> pd.DataFrame:
    """The columns that pandas keeps as they are, with an index as after a filter."""
    return TABLE.to_pandas(types_mapper=pd.ArrowDtype).set_index(pd.Index([7, 3]))


WAYS: dict[str, Callable[[], Any]] = {
    "dicts": lambda: ROWS,
    "a generator": lambda: (row for row in ROWS),
    "an Arrow table": lambda: TABLE,
    "a record batch": lambda: TABLE.to_batches()[0],
    "a record batch reader": lambda: TABLE.to_reader(),
    "a DataFrame": frame,
    "a DataFrame by its index": lambda: frame().set_index("ts"),
    "a table of nanoseconds": lambda: TABLE.set_column(0, "ts", TABLE["ts"].cast(pa.timestamp("ns", "UTC"))),
    "a relation of DuckDB": lambda: duckdb.connect().from_arrow(TABLE),
}


def read(body: bytes) -> list[dict[str, Any]]:
    """Return the rows by the node's reader of posts."""
    reader = text_format("ndjson", SCHEMA, delimiter="", null="", timestamp_format="")
    parsed = reader.parse(body, 1)
    assert (list(parsed.bad), list(reader.ignored)) == ([], [])
    rows: list[dict[str, Any]] = parsed.rows.to_pylist()
    return rows


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_read_as_they_were(way: str) -> None:
    ask = push_rows("s", WAYS[way](), "", "")
    assert ask.body is not None
    assert read(ask.body) == ROWS


@pytest.mark.parametrize("nanoseconds", [-1, -1000, -1001, 1, 999, 1001, -(2**62) - 1, 2**63 - 1])
def test_nanoseconds_are_cut_downwards_as_in_files(nanoseconds: int) -> None:
    micros = pa.array([nanoseconds // 1000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    array = pa.array([nanoseconds], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    ways: dict[str, Any] = {
        "Arrow": pa.table({"ts": array}),
        "pandas": pd.DataFrame({"ts": array.to_pandas()}),
        "a dict of pandas": [{"ts": pd.Timestamp(nanoseconds, unit="ns", tz="UTC")}],
        "a dict of NumPy": [{"ts": np.datetime64(nanoseconds, "ns")}],
    }
    for way, rows in ways.items():
        body = push_rows("s", rows, "", "").body
        assert body is not None
        assert [row["ts"] for row in read(body)] == micros.to_pylist(), way
    missing = push_rows("s", [{"ts": pd.NaT}], "", "").body
    assert missing == b'{"ts":null}\n'


def test_numbers_that_json_lacks_and_scalars_of_numpy_are_read_as_they_were() -> None:
    values = [math.inf, -math.inf, math.nan, None]
    of_table = push_rows("s", pa.table({"x": pa.array(values, pa.float64())}), "", "").body
    of_dicts = push_rows("s", [{"x": value, "n": np.int64(5)} for value in values], "", "").body
    assert of_table is not None
    assert of_dicts is not None
    assert repr([row["x"] for row in read(of_table)]) == repr(values)
    assert [row["x"] for row in read(of_dicts)] == [math.inf, -math.inf, None, None]
    assert {row["n"] for row in read(of_dicts)} == {5}


def test_missing_values_of_pandas_are_null_also_among_whole_numbers() -> None:
    """Whole numbers with holes are floats in pandas."""
    missing = pd.DataFrame({"n": [1, None, 2**53], "x": [0.5, math.nan, 1.5], "m": [7.0, math.nan, -7.0]})
    assert missing["n"].dtype == np.float64
    body = push_rows("s", missing, "", "").body
    assert body is not None
    values = [(row["n"], row["x"], row["m"]) for row in read(body)]
    assert values == [(1, 0.5, 7), (None, None, None), (2**53, 1.5, -7)]


def test_numbers_that_are_not_whole_are_bad_in_a_column_of_whole_ones() -> None:
    body = push_rows("s", pa.table({"n": [1.5, math.nan, 2.0]}), "", "").body
    assert body is not None
    parsed = text_format("ndjson", SCHEMA, delimiter="", null="", timestamp_format="").parse(body, 1)
    assert [(row.line, row.reason) for row in parsed.bad] == [(1, "n is no bigint: '1.5'"), (2, "n is no bigint: 'NaN'")]
    assert [row["n"] for row in parsed.rows.to_pylist()] == [2]


@pytest.mark.parametrize(
    "rows, where, message",
    [
        ({"n": 1}, "rows", "rows are no dict"),
        ("n", "rows", "rows are no str"),
        (b"{}", "rows", "rows are no bytes"),
        (7, "rows", "rows are no int"),
        (frame()["n"].tolist(), "row 1", "a row is no int"),
        ([{"n": 1}, ["n"]], "row 2", "a row is no list"),
        ([{"n": 1}, {"n": object()}], "row 2, n", "no JSON: object is no type of it"),
        ([{"n": 1}, {1.5: object()}], "row 2, 1.5", "no JSON"),
        (pa.chunked_array([[1, 2]]), "rows", "rows are no table"),
    ],
)
def test_other_values_are_refused_with_what_to_give(rows: Any, where: str, message: str) -> None:
    with pytest.raises(SbonError, match=message) as refusal:
        push_rows("s", rows, "", "")
    assert (refusal.value.code, refusal.value.where) == ("bad-request", where)
    assert refusal.value.hint
