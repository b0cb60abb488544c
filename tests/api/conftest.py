"""A node with switches, its HTTP API on a real loopback port, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sbon_node.api.server.http import ApiServer
from tests.api.async_client import AsyncClient
from tests.api.switched_node import SETTINGS, SwitchedNode


@pytest.fixture
def node() -> SwitchedNode:
    return SwitchedNode()


@pytest.fixture
async def server(node: SwitchedNode) -> AsyncIterator[ApiServer]:
    served = ApiServer(node, SETTINGS)
    await served.start("127.0.0.1", 0)
    served.set_ready()
    yield served
    await served.close()


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"http://127.0.0.1:{server.port}") as opened:
        yield opened
