"""The dashboard while nodes die. The last file of the folder: not all of its nodes come back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from sbon.local.cluster import LocalCluster
from tests.dashboard.conftest import QUERY
from tests.dashboard.looking import PATIENCE_MS, looking, texts

pytestmark = pytest.mark.live

expect.set_options(timeout=PATIENCE_MS)


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_nodes_that_die_are_shown_dead(browser: Browser, cluster: LocalCluster) -> None:
    """Another one first, then the page's own, which then comes back."""
    own = cluster["london"]
    with looking(browser, own.client.api, fails=True, clock=True) as page:
        expect(page.locator(".node.alive")).to_have_count(4)
        cluster["frankfurt"].kill()
        dead = page.locator("#members tr", has_text="frankfurt")
        expect(dead.locator("[data-head='State']")).to_have_text("dead")
        mark = page.locator("[data-node='frankfurt']")
        expect(mark).to_have_attribute("aria-label", re.compile(r"^frankfurt \(dead\)"))
        expect(page.locator("#members-note")).to_have_text("3 of 4 alive")
        expect(page.locator("#log li", has_text="frankfurt is dead")).to_be_visible()
        own.kill()
        expect(page.locator("#connection")).to_contain_text("No answer: the node does not answer; trying again")
        page.clock.fast_forward(10_000)
        expect(page.locator("#age")).to_contain_text("as of")
        expect(page.locator(".node")).to_have_count(4)
        own.restart()
        page.clock.fast_forward(60_000)  # it tries again ever more rarely
        expect(page.locator("#connection")).to_have_text("Live")
        expect(page.locator("#age")).to_have_text("")


@pytest.mark.only_in_test_all("pages of the dashboard")
def test_a_query_shows_on_without_the_node_that_took_it(browser: Browser, cluster: LocalCluster) -> None:
    leader = cluster["london"]
    leader.kill()
    try:
        with looking(browser, cluster["singapore"].client.api, query=QUERY, fails=True) as page:
            query = page.locator("#query-facts")
            expect(query).to_contain_text("SELECT site, value, ts FROM readings")
            assert texts(page, "#query-facts dt")[:2] == ["Consumer", "Strategy"]
            assert texts(page, "#query-facts dd")[0] == "singapore, file"
    finally:
        leader.restart()
