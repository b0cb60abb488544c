"""Health, readiness, metrics, log levels and draining over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sbon import endpoints
from sbon_cli import operations
from sbon_cli.client import Client
from sbon_node.api.server.http import ApiServer
from sbon_node.base.logging.levels import LogLevels, levels, set_levels
from sbon_protocol.api.nodes import Readiness, Reason
from tests.api.async_client import AsyncClient
from tests.api.scripted_operations import ALONE, not_ready
from tests.api.switched_node import SwitchedNode

FULL = Reason(code="low-disk", weight="unready", message="1 MB is left", hint="free some")


@pytest.fixture
async def session(client: AsyncClient) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(client.api) as opened:
        yield opened


async def test_a_node_that_is_not_ready_says_the_worst_reason_and_all(
    node: SwitchedNode, client: AsyncClient, session: aiohttp.ClientSession
) -> None:
    node.operations.told = not_ready(FULL, ALONE)
    response = await session.get("/readyz")
    assert (response.status, response.content_type) == (503, "application/problem+json")
    told = await response.json()
    assert (told["code"], told["message"], told["hint"]) == ("low-disk", "1 MB is left", "free some")
    assert told["details"] == ["low-disk: 1 MB is left", "alone: no other member can be reached"]
    read = await asyncio.to_thread(Client(client.api).readiness)
    assert [(reason.code, reason.weight) for reason in read.reasons] == [("low-disk", "unready"), ("alone", "impaired")]
    assert not await asyncio.to_thread(Client(client.api).ready)


async def test_a_ready_node_says_what_is_not_well_all_the_same(node: SwitchedNode, session: aiohttp.ClientSession) -> None:
    node.operations.told = Readiness(ready=True, reasons=(ALONE,))
    response = await session.get("/readyz")
    assert response.status == 200
    assert [reason["code"] for reason in (await response.json())["reasons"]] == ["alone"]


@pytest.mark.parametrize("state", ["starting", "stopping"])
async def test_a_node_that_is_not_ready_answers_with_its_state(node: SwitchedNode, state: str) -> None:
    server = ApiServer(node)
    await server.start("127.0.0.1", 0)
    if state == "stopping":
        server.set_ready(False)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as opened:
        answers = {path: await opened.get(path) for path in ("/healthz", "/readyz", "/metrics", "/v1/log", "/v1/debug")}
        assert {path: answer.status for path, answer in answers.items()} == {
            "/healthz": 200,
            "/readyz": 503,
            "/metrics": 503,
            "/v1/log": 200,
            "/v1/debug": 200,
        }
        assert (await answers["/readyz"].json())["code"] == state
    await server.close()


async def test_metrics_count_the_requests_themselves_by_route_and_not_by_path(
    node: SwitchedNode, session: aiohttp.ClientSession
) -> None:
    for path in ("/v1/status", "/v1/streams/nothing-1", "/v1/streams/nothing-2", "/no/such/path-1", "/no/such/path-2"):
        await (await session.get(path)).read()
    await (await session.request("PATCH", "/v1/status")).read()
    response = await session.get("/metrics")
    assert (response.status, response.content_type) == (200, "text/plain")
    families = {family.name: family for family in text_string_to_metric_families(await response.text())}
    found = {(s.labels["method"], s.labels["route"], s.labels["status"]): s.value for s in families["sbon_api_requests"].samples}
    assert found == {
        ("GET", "/v1/status", "200"): 1,
        ("GET", "/v1/streams/{name}", "404"): 2,
        ("unknown", "unknown", "404"): 2,
        ("unknown", "unknown", "405"): 1,
    }
    assert families["sbon_members"].samples
    assert {sample.labels["code"] for sample in families.get("sbon_reason").samples} == set()  # type: ignore[union-attr]
    assert families["sbon_ready"].samples[0].value == 1


async def test_draining(node: SwitchedNode, client: AsyncClient) -> None:
    *steps, end = [event async for event in client.events(endpoints.drain(dry_run=True))]
    assert ([step.target for step in steps], node.operations.drained) == (["paris"], False)
    *steps, end = [event async for event in client.events(endpoints.drain())]
    assert [step.step for step in steps] == ["waiting", "copying", "copying", "moved"]
    assert (end.has_left, end.moved, node.operations.drained) == (True, ("q.b0",), True)
    node.operations.stays = ("hosts q.sink of query q",)
    *steps, end = [event async for event in client.events(endpoints.drain())]
    assert (end.has_left, end.stays) == (False, node.operations.stays)


async def test_log_levels_are_set_at_run_time(client: AsyncClient, session: aiohttp.ClientSession) -> None:
    wanted = LogLevels(level="warning", loggers={"sbon_node.net": "debug"})
    try:
        assert await client.ask(operations.set_log_levels(wanted)) == wanted == levels()
        assert await client.ask(operations.log_levels()) == wanted
        for body, where in (
            ({"level": "loud"}, "level"),
            ({"level": "info", "loggers": {"sbon_node.nett": "info"}}, "loggers"),
            ({"level": "info", "loggers": {"../etc": "info"}}, ""),
            ({"loggers": {}}, ""),
        ):
            response = await session.put("/v1/log", json=body)
            told = await response.json()
            assert response.status in (400, 404), told
            assert told["where"].startswith(where)
        assert levels() == wanted
    finally:
        set_levels(LogLevels(level="info"))


async def test_an_examination_and_the_inside(node: SwitchedNode, client: AsyncClient) -> None:
    assert await client.ask(operations.examine()) == node.operations.examination
    assert (await client.ask(operations.debug_dump())).config == {"node": {"name": "a"}}
