"""The ports that an engine's JVM opens on loopback give other users of the machine nothing."""

from __future__ import annotations

import asyncio
import struct

import psutil
import pytest

from tests.engine.shared.bench import Bench

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="session")]

IN_SPARK = struct.pack(">qbqi", 25, 3, 77, 4) + b"junk\n"
"""A call as Spark sends it: the length, the kind of message, a number, the length of the body, and the body; then a new line."""
IN_PY4J = b"r\nu\njava.lang.System\nrj\ne\n"
"""The first question of py4j about a class."""
FOUND = b"!y"


async def answer(port: int, call: bytes) -> bytes:
    """Return what a port answers to a call without its secret; nothing if it waits for that in silence."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(call)
    try:
        async with asyncio.timeout(10):
            return await reader.read(4096)
    except (ConnectionResetError, TimeoutError):
        return b""
    finally:
        writer.close()


async def test_no_port_of_the_jvm_reads_a_call_of_somebody_without_its_secret(bench: Bench) -> None:
    await bench.engine.start()
    jvm = next(one for one in psutil.Process(bench.engine.engine_pid).children(recursive=True) if "java" in one.name())
    listening = [one.laddr for one in jvm.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    in_spark = [await answer(address.port, IN_SPARK) for address in listening]
    in_py4j = [await answer(address.port, IN_PY4J) for address in listening]
    assert any(b"Expected SaslMessage" in one for one in in_spark), in_spark
    assert not any(b"RequestMessage" in one for one in in_spark), "it has read the call"
    assert not any(one.startswith(FOUND) for one in in_py4j)
