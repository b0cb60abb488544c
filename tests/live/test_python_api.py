"""Streams, queries and rows from Python, on real daemons and Spark: sync, async, as Arrow and as data frames."""

from __future__ import annotations

from datetime import UTC

import pytest

from sbon import connect, connect_async
from tests.live.world import World, wait_for

pytestmark = pytest.mark.live

SQL = "SELECT site, n, value * 2e0 AS twice, upper(note) AS note, ts FROM told WHERE n % 2 = 0 AND value > 10e0"


async def test_rows_are_duckdbs_and_typed(world: World) -> None:
    world.declare("told", replay=0)
    due = world.answer()
    overlay = connect(world.cluster["bob"].client.api)
    query = overlay.sql(SQL, strategy="consumer")
    table = query.to_arrow()
    assert [str(field.type) for field in table.schema] == ["string", "int64", "double", "string", "timestamp[us, tz=UTC]"]
    naive = [{**row, "ts": row["ts"].astimezone(UTC).replace(tzinfo=None)} for row in table.to_pylist()]
    assert sorted((tuple(row.values()) for row in naive), key=repr) == due
    wait_for(lambda: query.info().state == "finished", "the query is finished")  # its last row comes before that
    assert query.query_usage().byte_ms > 0
    again = await (await connect_async(world.cluster["ada"].client.api)).sql(SQL, strategy="consumer", consumer="bob")
    frame = await again.to_pandas()
    assert sorted(frame["n"].tolist()) == sorted(int(str(row[1])) for row in due)
