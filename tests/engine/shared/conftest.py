"""One engine for the tests of this folder that neither kill nor fill it, with an engine process that tests can question."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.engine.shared.bench import Bench


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("engine"))
    yield made
    await made.engine.close()


@pytest_asyncio.fixture(loop_scope="session")
async def bench(shared: Bench) -> AsyncIterator[Bench]:
    """The engine without operators; a test leaves none behind."""
    yield shared
    assert await shared.clear() == []
