"""Secrets are referred to: no option holds one, only hosts that are named get one, and none travels in the clear."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from sbon_node.connectors.access.secrets import check_no_secrets
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.registry import check_sink
from sbon_protocol.errors import SbonError
from tests.connectors.sent_streams import ARROW
from tests.connectors.sink_world import Sinking

assert ARROW

LITERAL: list[tuple[dict[str, Any], str]] = [
    ({"url": "postgres://me:s3cret@h/db"}, "options.url"),
    ({"url": "mqtt://:s3cret@h"}, "options.url"),
    ({"url": "https://h/x?token=s3cret"}, "options.url"),
    ({"password": "s3cret"}, "options.password"),
    ({"headers": {"Authorization": "Bearer s3cret"}}, "options.headers.Authorization"),
    ({"headers": '{"X-Api-Key": "s3cret"}'}, "options.headers.X-Api-Key"),
    ({"nested": [{"client_secret": "s3cret"}]}, "options.nested.client_secret"),
]


@pytest.mark.parametrize("options, where", LITERAL)
def test_a_secret_in_an_option_is_refused_with_the_way_to_give_it(options: dict[str, Any], where: str) -> None:
    with pytest.raises(SbonError) as refused:
        check_no_secrets(options)
    assert (refused.value.code, refused.value.where) == ("literal-secret", where)
    assert "env:SBON_SECRET_NAME or file:NAME" in refused.value.hint
    assert "s3cret" not in str(refused.value)


def test_references_and_plain_options_pass() -> None:
    check_no_secrets({"url": "postgres://me@h/db?sslmode=require", "password": "env:SBON_SECRET_DB", "table": "tokens"})
    check_no_secrets({"url": "file:hook", "headers": {"Authorization": "file:token", "X-One": "1"}, "password": ""})
    check_no_secrets({"pattern": r"(?P<user>\w+) password=(?P<n>\d+)", "path": "/var/log/a:b@c", "stamp": True, "n": None})


TLS = "?sslmode=require"
NAMED = ("db.example.org", "h.example.org")


def postgres(settings: ConnectorSettings, url: str = f"postgres://me@db.example.org/x{TLS}", password: str = "file:db") -> None:
    check_sink("postgres", {"url": url, "password": password, "table": "t"}, settings)


def code(call: Any, *args: Any) -> str:
    with pytest.raises(SbonError) as refused:
        call(*args)
    return refused.value.code


def test_secrets_are_read_where_they_may_and_go_where_they_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "db").write_text("s3cret\n")
    monkeypatch.setenv("SBON_SECRET_DB", "s3cret")
    monkeypatch.setenv("HOME_WORD", "s3cret")
    named = ConnectorSettings(endpoints=NAMED, secrets=str(tmp_path))
    for reference in ("file:db", "env:SBON_SECRET_DB"):
        postgres(named, password=reference)
        assert code(postgres, ConnectorSettings(secrets=str(tmp_path))) == "secret-refused"
        assert code(postgres, ConnectorSettings(secrets=str(tmp_path), endpoints=("*.example.org",))) == "secret-refused"
    for reference in ("env:HOME_WORD", "env:SBON_SECRET_NONE", "file:none"):
        assert code(postgres, named, f"postgres://me@db.example.org/x{TLS}", reference) == "secret-missing"
    for reference in ("file:../db", "file:/etc/passwd", "file:.db"):
        assert code(postgres, named, f"postgres://me@db.example.org/x{TLS}", reference) == "literal-secret"


def test_no_password_travels_in_the_clear(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("s3cret")
    named = ConnectorSettings(endpoints=NAMED, secrets=str(tmp_path))
    for mode in ("disable", "allow"):
        assert code(postgres, named, f"postgres://me@db.example.org/x?sslmode={mode}") == "cleartext-password"
    clear = ConnectorSettings(endpoints=NAMED, secrets=str(tmp_path), cleartext=("db.example.org:5432", "h.example.org"))
    postgres(clear, "postgres://me@db.example.org/x?sslmode=disable")
    secret: dict[str, Any]
    for secret in ({"password": "file:db"}, {"headers": {"Authorization": "file:db"}}):
        check_sink("http", {"url": "https://me@h.example.org/", **secret}, named)
        check_sink("http", {"url": "http://me@h.example.org/", **secret}, clear)
        assert code(check_sink, "http", {"url": "http://me@h.example.org/", **secret}, named) == "cleartext-password"


class AsksInTheClear:
    """A server that speaks enough of PostgreSQL to receive a password, and no TLS."""

    def __init__(self) -> None:
        self.told: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size, what = struct.unpack("!II", await reader.readexactly(8))
        if what == 80877103:
            writer.write(b"N")
            size, what = struct.unpack("!II", await reader.readexactly(8))
        await reader.readexactly(size - 8)
        writer.write(b"R" + struct.pack("!II", 8, 3))
        kind = await reader.readexactly(1)
        (size,) = struct.unpack("!I", await reader.readexactly(4))
        self.told.append(kind + await reader.readexactly(size - 4))
        writer.close()

    async def __aenter__(self) -> AsksInTheClear:
        self._server = await asyncio.start_server(self._safely, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _safely(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()


async def connect(folder: Path, url: str, settings: ConnectorSettings) -> None:
    with pytest.raises(SbonError):
        async with asyncio.timeout(20):
            await Sinking(folder, "postgres", {"url": url, "table": "t"}, settings=settings).open()


async def test_the_environments_password_goes_to_hosts_that_are_named_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    resolve = asyncio.get_running_loop().getaddrinfo

    async def here(host: Any, port: Any, **more: Any) -> Any:
        return await resolve("127.0.0.1" if host == "db.example.org" else host, port, **more)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", here)
    async with AsksInTheClear() as server:
        url = f"postgres://me@db.example.org:{server.port}/x"
        await connect(tmp_path, url, ConnectorSettings(endpoints=("*", "127.0.0.0/8")))
        assert server.told == [b"p\0"]
        server.told.clear()
        # Named, but without TLS: the server has none, and receives nothing.
        await connect(tmp_path, url, ConnectorSettings(endpoints=("db.example.org",)))
        assert server.told == []
        allowed = ConnectorSettings(endpoints=("db.example.org",), cleartext=("db.example.org",))
        await connect(tmp_path, url, allowed)
        assert server.told == [b"ps3cret\0"]
