"""Whose TCP connections a node of a local cluster takes: those of its own user and of root."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from sbon_node.api.server.http import ApiServer
from sbon_node.base.clock import Clock
from sbon_node.net.counters import Counters
from sbon_node.net.local_users import user_of
from sbon_node.net.settings import NetSettings
from sbon_node.net.sockets import SocketTransport
from sbon_node.net.transport import Address, Connection
from tests.api.switched_node import SwitchedNode

NOBODY = 65534
AS_ANOTHER_USER = pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
ASK = """
import encodings.idna, os, socket, sys  # before it may read nothing of ours
os.setuid(int(sys.argv[4]))
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) as connection:
    try:
        connection.sendall(b"GET /v1/status HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n")
        if sys.argv[3] == "hasty":
            sys.exit()
        while piece := connection.recv(65536):
            print(piece.decode(), end="")
    except ConnectionError:
        pass
"""


async def asked(host: str, port: int, user: int, manner: str = "patient") -> str:
    """Answer to a request of a program of that user."""
    arguments = [sys.executable, "-I", "-S", "-c", ASK, host, str(port), manner, str(user)]
    done = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, text=True, timeout=60)
    return done.stdout


@pytest.fixture(params=["127.0.0.1", "::1"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection over loopback: the caller's socket and the server's."""
    family = socket.AF_INET6 if request.param == "::1" else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as listener:
        caller = socket.create_connection(listener.getsockname()[:2])
        with closing(caller), closing(listener.accept()[0]) as accepted:
            yield caller, accepted


def test_the_holder_of_an_end_is_known_until_it_closes_it(ends: tuple[socket.socket, socket.socket]) -> None:
    caller, accepted = ends
    near, far = caller.getsockname()[:2], accepted.getsockname()[:2]
    assert user_of(near, far) == os.getuid()
    assert user_of(("127.0.0.9", near[1]), far) is None
    caller.close()
    assert user_of(near, far) is None, "the kernel shows what has no process as root's"


def test_an_ipv4_caller_of_a_socket_for_both_is_known() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as caller, closing(listener.accept()[0]):
            assert user_of(caller.getsockname()[:2], ("127.0.0.1", port)) == os.getuid()


@AS_ANOTHER_USER
@pytest.mark.parametrize("users, nobodys", [("own", "403"), ("any", "200")])
async def test_the_api_answers_its_own_user_and_others_only_where_any_may_ask(users: str, nobodys: str) -> None:
    served = ApiServer(SwitchedNode(), local_users=users)  # type: ignore[arg-type]
    await served.start("127.0.0.1", 0)
    served.set_ready()
    try:
        assert (await asked("127.0.0.1", served.port, 0)).startswith("HTTP/1.1 200 ")
        answer = await asked("127.0.0.1", served.port, NOBODY)
        assert answer.startswith(f"HTTP/1.1 {nobodys} ")
        assert ("forbidden-user" in answer) == (users == "own")
    finally:
        await served.close()


@AS_ANOTHER_USER
@pytest.mark.parametrize("users, nobodys", [("own", 0), ("any", 2)])
async def test_peers_of_another_user_are_accepted_only_where_any_may_be(users: str, nobodys: str) -> None:
    clock, accepted = Clock(), list[Address]()
    counters = Counters(clock.now)

    async def handle(connection: Connection) -> None:
        accepted.append(connection.peer)

    transport = SocketTransport(clock, NetSettings(local_users=users), counters)  # type: ignore[arg-type]
    listener = await transport.listen(Address("127.0.0.1", 0), handle)
    try:
        for user in (0, NOBODY):
            for manner in ("patient", "hasty"):
                await asked("127.0.0.1", listener.local.port, user, manner)
            if user == 0:
                assert accepted, "root is one of us"
                accepted.clear()
        assert len(accepted) == nobodys
        assert counters.snapshot().get("user-refused", 0) >= (2 if users == "own" else 0)
    finally:
        await listener.close()
