"""Values of files arrive as they are written: nothing passes through a type that holds less."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbon_node.connectors.settings import ConnectorSettings
from tests.connectors.test_file_source import US, read, source

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
