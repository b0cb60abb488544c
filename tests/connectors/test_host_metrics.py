"""The machine's own metrics as a source: real ones, at a pace, in the columns that were asked for."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import psutil
import pytest

from sbon_lab.simulation.loop import run
from sbon_node.base.clock import Clock
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.host_metrics import METRICS
from sbon_node.connectors.sources.registry import open_source
from sbon_node.model.schema import parse_schema
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.errors import SbonError

ALL = ", ".join(f"{name} {({'ts': 'timestamp', 'host': 'string'}).get(name, 'double')}" for name in METRICS)


def source(schema: str = ALL, clock: Clock | None = None, **options: Any) -> Any:
    stream = StreamDeclaration(name="machines", schema=parse_schema(schema), event_time="ts")
    declared = SourceDeclaration(stream="machines", name="a", node="athens", connector="hostmetrics", options=options)
    return open_source(declared, stream, ConnectorSettings(), clock)


def rows(count: int, schema: str = ALL, **options: Any) -> list[dict[str, Any]]:
    async def main() -> list[dict[str, Any]]:
        opened = source(schema, **options)
        opened.check()
        await opened.open(None)
        found = [(await opened.read()).rows.to_pylist()[0] for _ in range(count)]
        await opened.close()
        return found

    return asyncio.run(main())


def test_every_metric_is_that_of_this_machine() -> None:
    (row,) = rows(1, interval_s=0.1)
    assert row["host"] == "athens"
    assert 0 <= row["cpu"] <= 1
    assert row["disk_free_mb"] == pytest.approx(psutil.disk_usage("/").free / 2**20, rel=0.2)
    assert 0 < row["memory_available_mb"] < psutil.virtual_memory().total / 2**20
    assert all(row[name] is None or row[name] >= 0 for name in METRICS if name.endswith("_s"))


def test_sent_bytes_are_reported() -> None:
    async def main() -> float:
        opened = source(interval_s=0.5)
        await opened.open(None)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:
            loopback.bind(("127.0.0.1", 0))
            for _ in range(50):
                loopback.sendto(bytes(20_000), loopback.getsockname())
        found: float = (await opened.read()).rows.to_pylist()[0]["network_sent_bytes_s"]
        return found

    assert asyncio.run(main()) >= 50 * 20_000 / 0.5 / 4


def test_columns_choose_metrics_and_their_types() -> None:
    (row,) = rows(1, "ts timestamp, cpu float, disk_free_mb bigint", interval_s=0.1)
    assert list(row) == ["ts", "cpu", "disk_free_mb"]
    assert isinstance(row["disk_free_mb"], int)


def test_rows_come_at_the_interval_and_what_was_slept_through_is_left_out() -> None:
    async def main(clock: Clock) -> list[float]:
        opened = source(clock=clock, interval_s=10)
        await opened.open(b"7")
        times = []
        for pause_s in (0, 0, 25, 0):
            await asyncio.sleep(pause_s)
            chunk = await opened.read()
            times.append(clock.now())
        assert chunk.position == b"11"
        return times

    assert run(lambda loop, rng: main(loop.clock()), seed=1) == pytest.approx([10, 20, 45, 50])


@pytest.mark.parametrize(
    "schema, options, code, where",
    [
        ("ts timestamp, temperature double", {}, "bad-option", "columns.temperature"),
        ("ts timestamp, host int", {}, "bad-option", "columns.host"),
        (ALL, {"disk": "/no/such/place"}, "bad-option", "options.disk"),
        (ALL, {"interval_s": 0}, "bad-option", "options.interval_s"),
        (ALL, {"interval": 1}, "unknown-option", "options.interval"),
    ],
)
def test_a_missing_path_is_refused_by_name(schema: str, options: dict[str, Any], code: str, where: str) -> None:
    with pytest.raises(SbonError) as refused:
        source(schema, **options).check()
    assert (refused.value.code, refused.value.where) == (code, where)
