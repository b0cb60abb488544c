"""Durability, backups and losses of a query on the page, as a node reports them."""

from __future__ import annotations

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from sbon_protocol.api.durability import BackupInfo, Loss, Survival
from sbon_protocol.api.queries import QueryInfo
from tests.api.scripted_node import ScriptedNode
from tests.cli import conftest
from tests.dashboard.looking import looking

LOSES = Survival(
    any_node=False,
    losses=(Loss(node="a", part="sink", name="file", why="a sink stays at its node"),),
    text="would lose: a writes its sink (file)",
)
BACKUP = BackupInfo(state="behind", node="c", batch=41, age_s=12.0, reason="no answer from c")
TOLD = {"Durability": "replicated", "Backup": "behind at c, batch 41, 12 s old: no answer from c", "Epoch": "3"}

node, api = conftest.node, conftest.api


@pytest.fixture
def replicated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's query, with an operator that has a backup."""
    honest = ScriptedNode.query

    async def query(self: ScriptedNode, query_id: str) -> QueryInfo:
        info = await honest(self, query_id)
        operators = [msgspec.structs.replace(one, durability="replicated", backup=BACKUP, epoch=3) for one in info.operators]
        return msgspec.structs.replace(info, durability="replicated", operators=tuple(operators), survival=LOSES)

    monkeypatch.setattr(ScriptedNode, "query", query)


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_the_page_shows_backups_and_what_a_query_would_lose(browser: Browser, api: str, replicated: None) -> None:
    with looking(browser, api, query="q1") as page:
        facts = page.locator("dl.facts > div", has=page.locator("dt:text-is('Loss of a node')"))
        expect(facts.locator("dd")).to_have_text(LOSES.text)
        page.locator("[data-part='o1']").click()
        for name, text in TOLD.items():
            fact = page.locator("#part dl > div", has=page.locator(f"dt:text-is('{name}')"))
            expect(fact.locator("dd")).to_have_text(text)
        page.locator("[data-part='q1.sink']").click()
        expect(page.locator("#part")).not_to_contain_text("Durability")


BACKUPS = [
    (None, None),
    (BackupInfo(state="current", node="b", batch=0, age_s=90.0), "current at b, batch 0, 1.5 min old"),
    (BackupInfo(state="missing", reason="no room"), "missing: no room"),
    (
        BackupInfo(state="current", node="b", follows=True, recovered="by its follower"),
        "current at b, followed; taken over by its follower",
    ),
    (BackupInfo(state="current", node="b", follows=False, follows_not="no room"), "current at b, not followed: no room"),
]


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_backups_in_words(browser: Browser, api: str) -> None:
    with looking(browser, api) as page:
        work = "async (all) => { const m = await import('/dashboard/durability.js'); return all.map(m.backupText); }"
        told = page.evaluate(work, [None if backup is None else msgspec.to_builtins(backup) for backup, _ in BACKUPS])
    assert told == [text for _, text in BACKUPS]
