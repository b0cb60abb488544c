"""Values of files arrive as they are written: nothing passes through a type that holds less."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sbon_node.connectors.formats.text_format import RowFormat, text_format
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.file_formats import beginning, part, text
from sbon_node.connectors.sources.mqtt import as_lines
from tests.connectors.test_file_source import US, read, source
from tests.examples_drawn import examples

PLACEHOLDERS = [datetime(1, 1, 1), datetime(2006, 1, 2, 7, 4, 5), datetime(9999, 12, 31, 23, 59, 59, 999900), None]
"""Times in files of old Spark, Hive and Impala, which write the years 1 and 9999 where a time is unknown."""
NANOSECONDS = [-(2**63) + 2, -1001, -1000, -999, -1, 0, 1, 999, 1000, 2**63 - 2]


@pytest.mark.parametrize("unit", ["us", "ms"])
def test_parquet_times_of_every_year_are_read(tmp_path: Path, unit: str) -> None:
    """``INT96`` for microseconds, as older systems write; ``INT64`` for milliseconds."""
    path = tmp_path / "a.parquet"
    column = pa.array(PLACEHOLDERS, pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
    pq.write_table(pa.table({"ts": column}), path, use_deprecated_int96_timestamps=unit == "us")
    rows, bad, _ = read(source(path, pa.schema([("ts", US)]), ConnectorSettings()))
    assert not bad
    expected = duckdb.sql(f"SELECT ts FROM '{path}'").fetchall()
    assert [row["ts"] and row["ts"].replace(tzinfo=None) for row in rows] == [time for (time,) in expected]


@pytest.mark.parametrize("int96", [False, True])
def test_parquet_times_are_cut_to_the_microsecond_before(tmp_path: Path, int96: bool) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"ts": pa.array(NANOSECONDS, pa.timestamp("ns"))}), path, use_deprecated_int96_timestamps=int96)
    rows, bad, _ = read(source(path, pa.schema([("ts", US)]), ConnectorSettings()))
    assert not bad
    assert [row["ts"] for row in rows] == [
        datetime.fromtimestamp(0, UTC) + timedelta(microseconds=n // 1000) for n in NANOSECONDS
    ]


@pytest.mark.parametrize(
    ("of_file", "column", "numbers"),
    [
        (pa.decimal128(38, 0), pa.decimal128(38, 2), ["7" + 36 * "0", "-7" + 35 * "0", "9" * 36]),
        (pa.decimal128(18, 0), pa.decimal128(38, 30), ["123456789012345678", "12345678", "-99999999", "100000000"]),
        (pa.decimal128(20, 10), pa.decimal128(12, 4), ["12345678.9012", "123456789", "1.00001", "0", "-99999999.9999"]),
        (pa.decimal128(38, 38), pa.decimal128(18, 18), ["0.123456789012345678", "-0.1234567890123456789"]),
    ],
)
def test_parquet_decimals_are_exact_or_bad(tmp_path: Path, of_file: Any, column: Any, numbers: list[str]) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": pa.array([Decimal(number) for number in numbers], of_file)}), path)
    rows, bad, _ = read(source(path, pa.schema([("x", column)]), ConnectorSettings()))
    expected = [expected_number(number, column) for number in numbers]
    assert [row["x"] for row in rows] == [number for number in expected if number != "bad"]
    assert len(bad) == expected.count("bad") > 0
    assert rows


def parsed(kind: RowFormat, content: bytes, schema: pa.Schema, **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    rows = text_format(kind, schema, **options)
    start = rows.begin(content)
    found = rows.parse(content[start:], 1)
    return found.rows.to_pylist(), [bad.reason for bad in found.bad]


TRUE, FALSE, DAY = {"true", "True", "TRUE", "1", " true"}, {"false", "0", "FALSE"}, {"2026-11-30"}
WRITTEN = {
    pa.bool_(): TRUE | FALSE | {"t", "f", "yes", "no", "on", "2", "-1", "1.0", "wahr"},
    pa.date32(): DAY | {"2026-11-3", "20261130", "30.11.2026", "2026-02-30", "2026-11-30T00:00:00", "20000"},
}


@pytest.mark.parametrize("column", WRITTEN, ids=str)
def test_booleans_and_dates_are_read_in_one_spelling_and_the_others_are_bad(column: pa.DataType) -> None:
    values = {**dict.fromkeys(TRUE, True), **dict.fromkeys(FALSE, False), "2026-11-30": datetime(2026, 11, 30).date()}
    for written in WRITTEN[column]:
        rows, bad = parsed("csv", f"x,y\n{written},1\n".encode(), pa.schema([("x", column), ("y", pa.int64())]))
        assert [row["x"] for row in rows] == ([values[written]] if written in values else []), written
        assert len(bad) == (written not in values)


@pytest.mark.parametrize(
    ("column", "value", "read"),
    [
        (pa.bool_(), "true", True),
        (pa.bool_(), "1", "bad"),
        (pa.bool_(), '"true"', "bad"),
        (pa.date32(), '"2026-11-30"', datetime(2026, 11, 30).date()),
        (pa.date32(), "20000", "bad"),
        (pa.date32(), '"30.11.2026"', "bad"),
    ],
)
def test_booleans_and_dates_of_json_keep_their_types(column: pa.DataType, value: str, read: Any) -> None:
    rows, bad = parsed("ndjson", f'{{"x": {value}}}\n'.encode(), pa.schema([("x", column)]))
    assert [row["x"] for row in rows] == ([] if read == "bad" else [read])
    assert len(bad) == (read == "bad")


def number_in(kind: RowFormat, number: str, column: pa.DataType) -> Any:
    """Return the value of a text of a number, ``bad`` if it is refused."""
    schema = pa.schema([("x", column)])
    content = f'{{"x":{number},"more":[1.5,1e400]}}\n' if kind == "ndjson" else f"x\n{number}\n"
    rows, bad = parsed(kind, content.encode(), schema)
    return "bad" if bad else rows[0]["x"]


@pytest.mark.parametrize("kind", ["csv", "ndjson"])
@pytest.mark.parametrize(
    "number, column",
    [
        ("12345678901234567.89", "decimal(20,2)"),
        ("123456789012345678901234567890.12345678", "decimal(38,8)"),
        ("0.123456789012345678", "decimal(18,18)"),
        ("-0.1", "decimal(38,38)"),
        ("1.25e2", "decimal(20,2)"),
        ("99999999999999999999999999999999999999", "decimal(38,0)"),
        ("1e38", "decimal(38,0)"),
        ("9007199254740993", "double"),
        ("1e400", "double"),
        ("-1e39", "float"),
        ("1.00000017881393432617187499", "float"),
    ],
)
def test_a_number_is_what_duckdb_reads_in_its_text(kind: RowFormat, number: str, column: str) -> None:
    types = {"double": pa.float64(), "float": pa.float32()}
    arrow = types.get(column) or pa.decimal128(*map(int, column[8:-1].split(",")))
    ((expected,),) = duckdb.execute(f"SELECT TRY_CAST(? AS {column})", [number]).fetchall()
    found = number_in(kind, number, arrow)
    assert (found, type(found)) == (("bad", str) if expected is None else (expected, type(expected)))


@pytest.mark.parametrize(
    "number, value",
    [
        ("9007199254740993.0", 9007199254740993),
        ("12345678901234567.0e1", 123456789012345670),
        ("3.5", "bad"),
        ("9223372036854775808.0", "bad"),
        ("1e999999999", "bad"),
        ("1e99999999999999999999", "bad"),
        ("true", "bad"),
    ],
)
def test_a_json_number_that_is_whole_is_an_integer(number: str, value: object) -> None:
    assert number_in("ndjson", number, pa.int64()) == value


def expected_number(text: str, column: pa.DataType) -> Any:
    """Return what Python makes of a text by the grammar of the module that is tested."""
    number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.IGNORECASE | re.ASCII)
    if pa.types.is_floating(column):
        word = re.fullmatch(r"[+-]?(nan|inf|infinity)", text, re.IGNORECASE)
        return float(text) if number or word else "bad"
    if number is None:
        return "bad"
    with localcontext(prec=200, Emin=-10_000, Emax=10_000):
        value = Decimal(text)
        if pa.types.is_integer(column):
            return int(value) if value == value.to_integral_value() and -(2**63) <= value < 2**63 else "bad"
        exact = value.quantize(Decimal(1).scaleb(-column.scale)) + 0  # without the sign of a zero
        return exact if exact == value and abs(exact.scaleb(column.scale)) < 10**column.precision else "bad"


NUMBERS = st.one_of(
    st.from_regex(r"[+-]?([0-9]{1,22}\.?[0-9]{0,9}|\.[0-9]{1,9})([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.from_regex(r"[+-]?(0[xX]|0[bB]|0[oO])?[0-9]{1,3}[0-9a-fxXob_ ]{0,3}", fullmatch=True).filter(
        lambda text: text == text.strip()
    ),
    st.sampled_from(
        ["nan", "-NaN", "inf", "+Infinity", "nan(1)", "infinit", "1e", "1e+", ".", "+", "-.e1", "+-1", "--1", "1,5", "\u0663"]
    ),
)


TIMES = st.from_regex(
    r"2026-0[0-9]-[0-3][0-9]([Tt ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?([Zz]|[+-]0[0-9]:?00)?)?", fullmatch=True
)


@settings(max_examples=examples(300), deadline=None)
@given(NUMBERS, st.sampled_from([pa.int64(), pa.float64(), pa.decimal128(38, 2), pa.decimal128(12, 4)]))
@example("+5", pa.int64())
@example("0x1F", pa.int64())
@example("5.0", pa.int64())
@example("nan(1)", pa.float64())
@example("0e50", pa.int64())
@example("-.0e99", pa.decimal128(12, 4))
@example(".1e-42", pa.decimal128(12, 4))
@example("1.5" + 40 * "0", pa.decimal128(38, 2))
@example("7" + 36 * "0", pa.decimal128(38, 2))
@example("123456789012345678", pa.decimal128(38, 30))
@example("0." + 40 * "0", pa.decimal128(38, 2))
@example("0." + 40 * "0" + "1", pa.decimal128(38, 2))
def test_one_grammar_holds_for_numbers_of_all_types(text: str, column: pa.DataType) -> None:
    schema = pa.schema([("x", column), ("more", pa.string())])
    rows, bad = parsed("csv", f'x,more\n"{text}",a\n7,b\n'.encode(), schema)
    found = rows[0]["x"] if rows[0]["more"] == "a" else "bad"
    assert repr(found) == repr(expected_number(text, column))
    assert len(bad) == (found == "bad")
    if found != "bad" and not pa.types.is_floating(column):
        kind = "BIGINT" if pa.types.is_integer(column) else f"DECIMAL({column.precision},{column.scale})"
        (theirs,) = duckdb.execute(f"SELECT TRY_CAST(? AS {kind})", [text]).fetchall()[0]
        # DuckDB moves the point step by step, and refuses what is too long on the way, such as .01E9 for DECIMAL(12,4).
        assert theirs == found or (theirs is None and "e" in text.lower())


@settings(max_examples=examples(100), deadline=None)
@given(st.one_of(NUMBERS, TIMES), st.sampled_from([pa.int64(), pa.float64(), pa.decimal128(38, 2), US, pa.date32(), pa.bool_()]))
@example("0x1F", pa.int64())
@example("7" + 36 * "0", pa.decimal128(38, 2))
@example("2026-03-02T09:00:00z", US)
@example("2026-03-02T09:00:00.123456789Z", US)
def test_a_text_in_parquet_is_read_as_in_csv(tmp_path_factory: pytest.TempPathFactory, value: str, column: pa.DataType) -> None:
    schema, path = pa.schema([("x", column), ("more", pa.string())]), tmp_path_factory.mktemp("texts") / "a.parquet"
    in_csv, bad_in_csv = parsed("csv", f'x,more\n"{value}",a\n'.encode(), schema)
    for text_type in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        pq.write_table(pa.table({"x": pa.array([value]).cast(text_type), "more": pa.array(["a"])}), path)
        rows, bad, _ = read(source(path, schema, ConnectorSettings()))
        assert (repr(rows), len(bad)) == (repr(in_csv), len(bad_in_csv))


def test_a_json_message_over_several_lines_keeps_its_digits() -> None:
    payload = b'{\n  "x": 12345678901234567.89,\n "more": [1.50]}\n'
    assert parsed("ndjson", as_lines(payload, "ndjson"), pa.schema([("x", pa.decimal128(20, 2))])) == (
        [{"x": Decimal("12345678901234567.89")}],
        [],
    )


SCHEMA = pa.schema(
    [
        ("b", pa.bool_()),
        ("i", pa.int64()),
        ("t", pa.int8()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("n", pa.decimal128(38, 8)),
        ("m", pa.decimal128(18, 18)),
        ("s", pa.string()),
        ("day", pa.date32()),
        ("ts", US),
    ]
)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    return st.integers(1 - 10**precision, 10**precision - 1).map(lambda whole: scaled(whole, scale))


def scaled(whole: int, scale: int) -> Decimal:
    with localcontext(prec=40):
        return Decimal(whole).scaleb(-scale)


ROWS = st.lists(
    st.tuples(
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-128, 127),
        st.floats(allow_nan=True),
        st.floats(width=32),
        decimals(38, 8),
        decimals(18, 18),
        st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8),
        st.dates(),
        st.datetimes(min_value=datetime(1, 1, 1), timezones=st.just(UTC)),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(150), deadline=None)
@given(ROWS)
def test_every_value_that_a_sink_writes_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    table = pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)], schema=SCHEMA
    )
    path = tmp_path_factory.mktemp("part") / "a.parquet"
    path.write_bytes(part(table))
    written = [as_texts(row) for row in table.to_pylist()]
    assert ([as_texts(row) for row in read(source(path, SCHEMA, ConnectorSettings()))[0]]) == written
    for kind in ("csv", "ndjson"):
        found, bad = parsed(kind, beginning(kind, SCHEMA) + text(kind, table), SCHEMA)
        assert ([as_texts(row) for row in found], bad) == (written, [])


def as_texts(row: dict[str, Any]) -> dict[str, str]:
    """Return values in a form in which NaN equals itself, and -0.0 not 0.0."""
    return {name: repr(value) for name, value in row.items()}
