"""Limits on the rate of requests: pure buckets, and the answers of a server that has had enough."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest

from sbon_node.api.server.http import ApiServer
from sbon_node.base.token_buckets import TokenBucket, TokenBuckets
from sbon_node.config.api import ApiSettings
from tests.api.switched_node import SETTINGS, SwitchedNode


def test_a_bucket_lets_a_burst_pass_and_then_the_rate() -> None:
    buckets = TokenBuckets(each=lambda: TokenBucket(5, 10.0), most=9)
    assert [buckets.take("a", 1, 0.0) for _ in range(5)] == [0.0] * 5
    assert buckets.take("a", 1, 0.0) == pytest.approx(0.1)
    assert buckets.take("b", 1, 0.0) == 0.0
    assert buckets.take("a", 1, 0.05) == pytest.approx(0.05)
    assert buckets.take("a", 1, 0.11) == 0.0
    assert [buckets.take("a", 1, 60.0) > 0 for _ in range(6)] == [False] * 5 + [True]


def test_over_any_time_no_more_pass_than_burst_and_rate_allow() -> None:
    rng = random.Random(5)
    buckets = TokenBuckets(each=lambda: TokenBucket(3, 7.0), most=9)
    now, passed = 0.0, 0
    for _ in range(5000):
        now += rng.expovariate(20.0)
        passed += buckets.take("a", 1, now) == 0.0
        assert passed <= 3 + 7.0 * now
    assert passed > 0.95 * 7.0 * now


def test_the_clients_remembered_are_bounded() -> None:
    buckets = TokenBuckets(each=lambda: TokenBucket(1, 1.0), most=3)
    for client in "abcab":
        buckets.take(client, 1, 0.0)
    buckets.take("d", 1, 0.0)
    assert len(buckets) == 3
    assert (buckets.take("a", 1, 0.0) > 0, buckets.take("b", 1, 0.0) > 0, buckets.take("c", 1, 0.0)) == (True, True, 0.0)


@pytest.fixture
async def strict(node: SwitchedNode) -> AsyncIterator[str]:
    """A server that lets three requests pass, and one every ten seconds."""
    settings = msgspec.structs.replace(SETTINGS, requests_per_s=0.1, request_burst=3)
    served = ApiServer(node, settings)
    await served.start("127.0.0.1", 0)
    served.set_ready()
    yield f"http://127.0.0.1:{served.port}"
    await served.close()


async def test_too_many_requests_are_refused_with_the_time_to_retry(strict: str) -> None:
    async with aiohttp.ClientSession(strict) as session:
        assert [(await session.get("/v1/status")).status for _ in range(3)] == [200] * 3
        for path in ("/v1/status", "/no/such/path"):
            refused = await session.get(path)
            problem = await refused.json()
            assert (refused.status, problem["code"], refused.content_type) == (
                429,
                "too-many-requests",
                "application/problem+json",
            )
            assert 1 <= int(refused.headers["Retry-After"]) <= 10
            assert "api.requests_per_s" in problem["hint"]


async def test_commands_in_a_hurry_never_meet_the_default_limit(node: SwitchedNode) -> None:
    """A script that starts a command every few milliseconds asks far less often than this."""
    served = ApiServer(node, ApiSettings())
    await served.start("127.0.0.1", 0)
    served.set_ready()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{served.port}") as session:
        assert {(await session.get("/v1/status")).status for _ in range(900)} == {200}
    await served.close()


async def test_a_refused_method_lists_the_allowed_methods(strict: str) -> None:
    async with aiohttp.ClientSession(strict) as session:
        refused = await session.put("/v1/streams")
        assert (refused.status, refused.headers["Allow"], (await refused.json())["code"]) == (
            405,
            "GET,POST",
            "method-not-allowed",
        )
        assert refused.content_type == "application/problem+json"


UNKNOWN = [
    ("GET", "/v1/members?nearby=b", None, "nearby", "did you mean near?"),
    ("GET", "/v1/status?x=1", None, "x", "it takes none"),
    ("GET", "/v1/members?near=a&near=b", None, "near", ""),
    ("POST", "/v1/streams", b'{"name": "s", "schema": [], "event_time": "ts", "delay": 5}', "delay", "did you mean delay_ms?"),
]


@pytest.mark.parametrize("method, path, body, where, hint", UNKNOWN)
async def test_unknown_fields_are_refused_by_name(
    node: SwitchedNode, server: ApiServer, method: str, path: str, body: bytes | None, where: str, hint: str
) -> None:
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}", headers=headers) as session:
        refused = await session.request(method, path, data=body)
        problem = await refused.json()
    assert (refused.status, problem["code"], problem["where"]) == (400, "bad-request", where)
    assert problem["hint"].startswith(hint)
    assert not node.entries
