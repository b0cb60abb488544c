"""Files of an engine process besides checkpoints: a log within its bound, and nothing in the node's working folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from sbon_node.base.clock import Clock
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from tests.engine.states import PATIENCE_S, States

BOUND = 65_536


@pytest_asyncio.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SparkEngine]:
    (tmp_path / "started").mkdir()
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "started")
    settings = EngineSettings(jit="c1", log_bytes=BOUND)
    made = SparkEngine(settings, Path("../data"), Clock.real(), States(), module="tests.engine.talking_engine")
    yield made
    await made.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.02)


async def test_the_log_is_bounded_while_the_host_writes_to_it(engine: SparkEngine, tmp_path: Path) -> None:
    log, aside = tmp_path / "data" / "engine.log", tmp_path / "data" / "engine.log.1"
    await engine.analyse("1000", ())
    await until(lambda: aside.exists() and log.stat().st_size == 0)
    assert [line.split()[1] for line in aside.read_text().splitlines()] == [str(n) for n in range(1000)]

    await engine.analyse("2", ())  # the same engine process
    assert [line.split()[1] for line in log.read_text().splitlines()] == ["0", "1"]


async def test_the_host_lives_in_the_data_directory(engine: SparkEngine, tmp_path: Path) -> None:
    (column,) = await engine.analyse("0", ())
    assert column.name == str(tmp_path / "data")
    assert list((tmp_path / "started").iterdir()) == []
