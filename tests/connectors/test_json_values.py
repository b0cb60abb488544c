"""Values without an equivalent in Python or JSON: the API and NDJSON write them, and sources read them again."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest

from sbon_node.api.encoding import encode
from sbon_node.connectors.formats.json_values import values_of
from sbon_node.connectors.formats.lines import NdjsonRows
from sbon_node.connectors.sinks.file_formats import text
from sbon_node.planning.sql.relations.logical import Output
from sbon_node.planning.sql.stages.fragments import check_outputs
from sbon_node.planning.sql.syntax.dialect import parse
from sbon_protocol.api.columns import Column
from sbon_protocol.api.delivery import Rows
from sbon_protocol.errors import SbonError

YEAR_10000_US = 253_402_300_800_000_000
YEAR_0_US = -62_135_596_800_000_001
TIMES = [
    (YEAR_10000_US, "+10000-01-01T00:00:00Z"),
    (YEAR_10000_US + 1_500_000, "+10000-01-01T00:00:01.500000Z"),
    (YEAR_0_US, "0000-12-31T23:59:59.999999Z"),
    (-90_000_000_000_000_000, "-0882-01-06T08:00:00Z"),
    (1_500_000, "1970-01-01T00:00:01.500000Z"),
    (0, "1970-01-01T00:00:00Z"),
]
FLOATS = [math.nan, math.inf, -math.inf, 1.5, None]
SPOKEN = ["NaN", "Infinity", "-Infinity", 1.5, None]


def over_the_api(column: pa.Array) -> list[object]:
    values = values_of(column)
    rows = Rows(stream="s", number=1, columns=("x",), rows=tuple((value,) for value in values), watermark_ms=0, delay_ms=0)
    return [row[0] for row in json.loads(encode(rows))["rows"]]


def in_a_file(column: pa.Array) -> list[object]:
    return [json.loads(line)["x"] for line in text("ndjson", pa.table({"x": column})).splitlines()]


@pytest.mark.parametrize("written", [over_the_api, in_a_file])
def test_times_of_every_year_are_written_in_one_form(written: object) -> None:
    column = pa.array([at for at, _ in TIMES], pa.timestamp("us", "UTC"))
    assert callable(written)
    assert written(column) == [said for _, said in TIMES]
    dates = pa.array([2_932_897, -719_163, 0], pa.date32())
    assert written(dates) == ["+10000-01-01", "0000-12-31", "1970-01-01"]


@pytest.mark.parametrize("written", [over_the_api, in_a_file])
def test_numbers_that_are_not_finite_are_written_as_texts(written: object) -> None:
    assert callable(written)
    assert written(pa.array(FLOATS, pa.float64())) == SPOKEN


def test_a_source_reads_what_a_sink_and_the_api_write() -> None:
    lines = text("ndjson", pa.table({"x": pa.array(FLOATS, pa.float64())}))
    parsed = NdjsonRows(pa.schema([("x", pa.float64())]), timestamp_format="").parse(lines, 1)
    assert list(map(repr, parsed.rows.column("x").to_pylist())) == list(map(repr, FLOATS))
    assert not parsed.bad


@pytest.mark.parametrize("word", ["nan", "Inf", "1.5", ""])
def test_other_texts_are_no_numbers(word: str) -> None:
    line = json.dumps({"x": word}).encode() + b"\n"
    parsed = NdjsonRows(pa.schema([("x", pa.float64())]), timestamp_format="").parse(line, 1)
    assert len(parsed.bad) == 1


def test_timestamps_without_a_zone_are_refused_with_a_hint() -> None:
    sql = "SELECT convert_timezone('UTC', 'Europe/Paris', ts) AS x FROM s"
    made = Output("x", parse(sql)[0].expressions[0].this)
    with pytest.raises(SbonError) as refused:
        check_outputs(sql, (Column("x", "timestamp_ntz"),), (made,))
    assert "CAST(convert_timezone('UTC', 'Europe/Paris', ts) AS timestamp)" in refused.value.hint
