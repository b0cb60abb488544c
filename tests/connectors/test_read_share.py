"""The share of a finite source that has been read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbon_node.base.clock import Clock
from sbon_node.connectors.interface import Measured
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.registry import open_source
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column

STREAM = StreamDeclaration(name="s", schema=(Column("ts", "timestamp"), Column("n", "bigint")), event_time="ts")
ROWS = 2_000


def written(path: Path) -> None:
    times = [f"2020-01-01T00:{i // 60 % 60:02}:{i % 60:02}Z" for i in range(ROWS)]
    if path.suffix == ".parquet":
        table = pa.table({"ts": pa.array(times).cast(pa.timestamp("us", "UTC")), "n": range(ROWS)})
        pq.write_table(table, path, row_group_size=300)
    else:
        path.write_text("ts,n\n" + "".join(f"{ts},{i:06}\n" for i, ts in enumerate(times)))


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", ""])
async def test_the_share_grows_with_the_rows_to_one(tmp_path: Path, name: str) -> None:
    options: dict[str, Any] = {"rows": ROWS, "rate": 0}
    if name:
        written(tmp_path / name)
        options = {"path": str(tmp_path / name)}
    declared = SourceDeclaration(stream="s", name="a", node="a", connector="file" if name else "generator", options=options)
    opened = open_source(declared, STREAM, ConnectorSettings(block_bytes=65_536), Clock())
    assert isinstance(opened, Measured)
    await opened.open(None)
    rows, position = 0, None
    while (chunk := await opened.read()) is not None:
        rows += chunk.rows.num_rows
        position = chunk.position
        assert opened.share == pytest.approx(rows / ROWS, abs=0.01)
    assert (rows, opened.share) == (ROWS, 1.0)
    await opened.close()
    await opened.open(position)
    assert opened.share == 1.0


async def test_rows_of_a_replay_that_are_not_due_are_not_read(tmp_path: Path) -> None:
    written(tmp_path / "rows.csv")
    options = {"path": str(tmp_path / "rows.csv"), "replay": 1.0}
    declared = SourceDeclaration(stream="s", name="a", node="a", connector="file", options=options)
    opened = open_source(declared, STREAM, ConnectorSettings(), Clock())
    assert isinstance(opened, Measured)
    await opened.open(None)
    first = await opened.read()
    assert first is not None
    assert opened.share == pytest.approx(first.rows.num_rows / ROWS, abs=0.01)
    assert opened.share < 0.1
    await opened.close()


async def test_a_source_without_end_has_no_share() -> None:
    declared = SourceDeclaration(stream="s", name="a", node="a", connector="generator", options={"rate": 5})
    opened = open_source(declared, STREAM, ConnectorSettings(), Clock())
    assert not opened.finite
    assert isinstance(opened, Measured)
    assert opened.share is None
