"""The files of the dashboard as a node serves them: which there are, and what keeps their page to itself."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import pytest

from sbon_node.api.pages import FOLDER, TYPES
from sbon_node.api.server.http import ApiServer
from tests.api.async_client import AsyncClient

FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())


async def test_every_file_is_served_under_a_policy_that_allows_its_own_node_alone(client: AsyncClient) -> None:
    async with aiohttp.ClientSession(client.api) as session:
        for name in FILES:
            answer = await session.get(f"/dashboard/{name}")
            assert answer.status == 200, name
            assert await answer.read() == (FOLDER / name).read_bytes()
            assert answer.content_type == TYPES[Path(name).suffix]
            policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
            assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_the_page_is_found_at_the_root_and_asked_for_anew(client: AsyncClient) -> None:
    index = (FOLDER / "index.html").read_bytes()
    async with aiohttp.ClientSession(client.api) as session:
        for path in ("/", "/dashboard", "/dashboard/"):
            answer = await session.get(path)
            assert (answer.url.path, await answer.read()) == ("/dashboard/", index)
        again = await session.get("/dashboard/", headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status, await again.read()) == (304, b"")
        assert (await session.head("/dashboard/main.js")).status == 200


@pytest.mark.parametrize("name", ["nothing.js", "../pages.py", "%2e%2e/pages.py", "..%2fpages.py", "style/", "/etc/passwd"])
async def test_nothing_else_is_served(client: AsyncClient, name: str) -> None:
    async with aiohttp.ClientSession(client.api) as session:
        answer = await session.get(f"/dashboard/{name}")
        assert answer.status == 404
        assert (await answer.json(content_type=None))["code"] == "unknown-path"


async def test_pages_of_other_origins_are_refused(client: AsyncClient) -> None:
    async with aiohttp.ClientSession(client.api) as session:
        answer = await session.get("/dashboard/", headers={"Origin": "https://elsewhere.example"})
        assert answer.status == 403


async def test_it_is_served_while_the_node_starts(server: ApiServer, client: AsyncClient) -> None:
    server.set_ready(False)
    async with aiohttp.ClientSession(client.api) as session:
        assert (await session.get("/dashboard/")).status == 200
        assert (await session.get("/v1/status")).status == 503


def test_the_files_name_only_files_that_are_served() -> None:
    """Imports, styles and pictures are files of this folder; nothing is written in line, nothing is fetched from elsewhere."""
    for name in FILES:
        text = (FOLDER / name).read_text(encoding="utf-8")
        named = re.findall(r'(?:from|src=|href=) ?"(?!#)(?:\./)?([^"]+)"', text)
        assert set(named) <= set(FILES), name
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}, name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function| on\w+=\"| style=\"", text
        ), name


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".js", ".css"))])
def test_files_stay_short_and_say_what_they_are(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text.startswith(("// ", "/* "))
    assert len(text.splitlines()) <= 300
