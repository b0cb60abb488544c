"""Small Parquet files that unpack to very much: read within the bound, or refused with the column and the limit."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbon_node.connectors.formats.parquet import column_bounds
from sbon_node.connectors.settings import MIB, ConnectorSettings
from sbon_node.connectors.sources.file import FileOptions, FileSource
from sbon_protocol.errors import SbonError
from tests.connectors.source_context import context_of

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
LIMITS = ConnectorSettings(parquet_bytes=16 * MIB)

# Reads a file as a source does, in a process of its own, and tells rows, a sum and the most that Arrow had allocated.
READ = """
import asyncio, json, sys
from pathlib import Path
import pyarrow as pa
from sbon_node.connectors.settings import MIB
sys.path.insert(0, sys.argv[2])
from tests.connectors.test_parquet_bounds import totals
rows, characters = asyncio.run(totals(Path(sys.argv[1])))
print(json.dumps([rows, characters, pa.default_memory_pool().max_memory()]))
"""


def source(path: Path) -> FileSource:
    return FileSource(context_of(SCHEMA, LIMITS, event_time=""), FileOptions(path=str(path)))


async def totals(path: Path) -> tuple[int, int]:
    one = source(path)
    await one.open(None)
    rows = characters = 0
    while (chunk := await one.read()) is not None:
        rows += chunk.rows.num_rows
        characters += sum(map(len, chunk.rows.column("text").to_pylist()))
    await one.close()
    return rows, characters


def numbered(texts: Any) -> pa.Table:
    return pa.table({"n": pa.array(range(len(texts)), pa.int64()), "text": texts})


def one_entry(rows: int, size: int) -> pa.Table:
    return numbered(pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array(["y" * size])))


@pytest.mark.one_part_per_commit("Parquet files of repeated values", parts=12)
@pytest.mark.parametrize(
    "texts, how",
    [
        # 300 MiB of text in one entry of a dictionary.
        (lambda: one_entry(300, MIB), {"dictionary_pagesize_limit": 2**30, "store_schema": False}),
        # The same without a dictionary: each text is the one before it.
        (
            lambda: numbered(pa.array(["x" * 400_000] * 800)),
            {"use_dictionary": False, "column_encoding": {"n": "PLAIN", "text": "DELTA_BYTE_ARRAY"}, "data_page_size": 2**30},
        ),
        # A dictionary that became too large half-way, and plain pages after it.
        (
            lambda: numbered(pa.array(["z" * 500_000] * 600 + [str(i) * 40_000 for i in range(40)])),
            {"dictionary_pagesize_limit": MIB, "data_page_size": MIB, "write_batch_size": 10},
        ),
    ],
    ids=["dictionary", "delta", "fallback"],
)
def test_repeated_values_are_read_within_the_bound(tmp_path: Path, texts: Callable[[], pa.Table], how: dict[str, Any]) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(texts(), path, compression="zstd", **how)
    assert path.stat().st_size < MIB
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), str(root)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows, characters, most = json.loads(done.stdout)
    expected = duckdb.sql(f"SELECT count(*), sum(length(text)) FROM '{path}'").fetchall()
    assert [(rows, characters)] == expected
    assert most < 6 * LIMITS.parquet_bytes, f"{most:,}"


@pytest.mark.parametrize("dictionary", [False, True])
def test_pages_that_unpack_to_too_much_are_refused_before_they_are(tmp_path: Path, dictionary: bool) -> None:
    path = tmp_path / "a.parquet"
    texts = pa.array([f"{i}".rjust(1000) for i in range(60_000)])
    with pq.ParquetWriter(
        path,
        SCHEMA,
        compression="zstd",
        use_dictionary=["text"] if dictionary else False,
        dictionary_pagesize_limit=2**30,
        data_page_size=2**30,
        write_batch_size=2**20,
    ) as writer:
        writer.write_table(numbered(texts[:10]).cast(SCHEMA))
        writer.write_table(numbered(texts).cast(SCHEMA), row_group_size=2**20)
    assert path.stat().st_size < 2 * MIB
    before = pa.total_allocated_bytes()
    source(path).check()  # its first row group is small
    with pytest.raises(SbonError) as caught:
        asyncio.run(totals(path))
    error = caught.value
    assert (error.code, error.where) == ("file-too-large", str(path))
    assert "row group 1 " in error.message
    assert "column text" in error.message
    assert "connectors.parquet_bytes" in error.hint
    assert pa.total_allocated_bytes() - before < MIB


def test_a_footer_that_lies_changes_nothing(tmp_path: Path) -> None:
    """The sizes that the footer states are made small; the page's own header tells."""
    path = tmp_path / "a.parquet"
    texts = numbered(pa.array(["a" * 1000] * 60_000)).cast(SCHEMA)
    pq.write_table(texts, path, compression="zstd", use_dictionary=False, data_page_size=2**30, write_batch_size=2**20)
    chunk = pq.read_metadata(path).row_group(0).column(1)
    stated, least = _varint(chunk.total_uncompressed_size * 2), b"\x82\x80\x80\x00"
    content = path.read_bytes()
    footer = len(content) - int.from_bytes(content[-8:-4], "little") - 8
    assert content.count(stated, footer) >= 1
    assert len(stated) == len(least)
    path.write_bytes(content[:footer] + content[footer:].replace(stated, least))
    assert pq.read_metadata(path).row_group(0).column(1).total_uncompressed_size == 1
    with pytest.raises(SbonError) as caught:
        source(path).check()
    assert caught.value.code == "file-too-large"


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_bounds_are_those_of_the_pages(tmp_path: Path, codec: str, version: str) -> None:
    path = tmp_path / "a.parquet"
    table = numbered(pa.array([f"key-{i % 100:04}" for i in range(50_000)]))
    pq.write_table(table, path, compression=codec, data_page_version=version, use_dictionary=["text"], data_page_size=65_536)
    group = pq.read_metadata(path).row_group(0)
    with path.open("rb") as file:
        numbers = column_bounds(file, group.column(0), gathers=False)
        texts = column_bounds(file, group.column(1), gathers=False)
    assert numbers.most_bytes == numbers.row_bytes in (8, 9), "eight bytes, and what says that none is NULL"
    assert 65_536 <= numbers.page_bytes < 2 * 65_536 + 8192
    assert texts.most_bytes == 8, "the length of the longest entry of the dictionary"
    assert texts.row_bytes == 1


def test_a_page_header_that_is_none_is_an_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(numbered(pa.array(["a", "b"])).cast(SCHEMA), path, use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[pq.read_metadata(path).row_group(0).column(1).data_page_offset] = 0x1F
    path.write_bytes(content)
    with pytest.raises(SbonError) as caught:
        asyncio.run(totals(path))
    assert caught.value.code == "file-unreadable"


def _varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])
