"""A node that answers by itself, served on a real port in a thread, for commands to talk to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from sbon_node.api.server.http import ApiServer
from sbon_node.config.api import ApiSettings
from tests.api.scripted_node import ScriptedNode


@pytest.fixture
def node() -> ScriptedNode:
    return ScriptedNode()


@pytest.fixture
def api(node: ScriptedNode) -> Iterator[str]:
    """The URL of the node's API."""
    started = threading.Event()
    loop = asyncio.new_event_loop()
    ports: list[int] = []
    stopping = asyncio.Event()

    async def serve() -> None:
        server = ApiServer(node, ApiSettings(shutdown_s=1.0, keepalive_s=0.1))
        await server.start("127.0.0.1", 0)
        server.set_ready()

        def cut() -> None:
            assert server._runner.server is not None
            for connection in server._runner.server.connections:
                assert connection.transport is not None
                connection.transport.abort()

        node.cut = cut
        node.cut_from_outside = lambda: loop.call_soon_threadsafe(cut)
        node.tell = lambda kind, made: loop.call_soon_threadsafe(node.bus.publish, kind, made)
        ports.append(server.port)
        started.set()
        await stopping.wait()
        await server.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(10)
    yield f"http://127.0.0.1:{ports[0]}"
    loop.call_soon_threadsafe(stopping.set)
    thread.join()
    loop.close()
