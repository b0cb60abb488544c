"""The dashboard with a keyboard, in the dark, on a telephone, and while nobody looks."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from sbon.local.cluster import LocalCluster
from sbon.model import Column, SourceDeclaration, StreamDeclaration
from tests.dashboard.looking import PATIENCE_MS, looking, middle

pytestmark = pytest.mark.live

expect.set_options(timeout=PATIENCE_MS)

CONTRASTS = """(selectors) => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  return Object.fromEntries(selectors.map((selector) => {
    const element = document.querySelector(selector);
    const style = getComputedStyle(element);
    const ink = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [light(numbers(ink)), light(behind(element))];
    return [selector, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  }));
}"""
"""The contrast of text with what it stands on, as WCAG 2 reckons it."""

READ = [
    "body",
    ".quiet",
    "h2",
    ".card .time",
    ".node .name",
    "#members td",
    "thead th",
    "a",
    ".key b",
    "dl.facts dt",
    ".sql code",
]


def focused(page: Page, attribute: str) -> str:
    return str(page.evaluate("(name) => document.activeElement.getAttribute(name) ?? ''", attribute))


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_arrow_keys_go_from_node_to_node(page: Page) -> None:
    expect(page.locator(".node")).to_have_count(4)
    expect(page.locator(".card")).to_have_count(7)
    page.get_by_role("slider", name="Network usage over time").wait_for()  # what is above the map moves it as it comes
    page.locator("[data-node][tabindex='0']").focus()
    names = {str(node.get_attribute("data-node")) for node in page.locator(".node").all()}
    for key, axis, sign in (("ArrowRight", "x", 1), ("ArrowLeft", "x", -1), ("ArrowUp", "y", -1), ("ArrowDown", "y", 1)):
        for _ in range(4):
            before = focused(page, "data-node")
            page.keyboard.press(key)
            after = focused(page, "data-node")
            here, there = (page.locator(f"[data-node='{name}'] .hit").bounding_box() for name in (before, after))
            assert here
            assert there
            assert (there[axis] - here[axis]) * sign > 0 or before == after  # type: ignore[literal-required]
    page.keyboard.press("Home")
    seen = [focused(page, "data-node")]
    for _ in names:
        page.keyboard.press("PageDown")
        seen.append(focused(page, "data-node"))
    assert set(seen) == names
    assert seen[-1] == seen[-2]
    page.keyboard.press("End")
    assert focused(page, "data-node") == seen[-1]
    for _ in names:
        page.keyboard.press("PageUp")
    first = focused(page, "data-node")
    assert first == seen[0]
    expect(page.locator("#place-title")).to_have_text(first)
    assert page.locator("[data-node][tabindex='0']").count() == 1
    outline = page.evaluate("() => getComputedStyle(document.activeElement.querySelector('.hit')).strokeWidth")
    assert outline == "3px"
    page.keyboard.press("Enter")
    expect(page.locator(f"[data-node='{first}']")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#spoken")).to_have_text(f"{first}, alive")
    page.keyboard.press("Escape")
    expect(page.locator("[data-node='london']")).to_have_attribute("aria-pressed", "true")


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_tab_reaches_everything_and_shows_where_it_is(page: Page) -> None:
    page.reload()
    page.locator("#connection", has_text="Live").wait_for()
    expect(page.locator(".card")).to_have_count(7)
    expect(page.locator("#members tbody tr")).to_have_count(4)
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    expect(page.locator(".skip")).to_be_in_viewport()
    reached: set[str] = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        where, width = page.evaluate(
            """() => {
              const active = document.activeElement;
              const mark = active.closest(".node") ? active.querySelector(".hit") : active;
              const style = getComputedStyle(mark);
              const outline = style.outlineStyle === "none" ? "0" : style.outlineWidth;
              const shown = active.closest(".node") ? style.strokeWidth : outline;
              return [active.closest("section, nav")?.className ?? active.tagName, parseFloat(shown)];
            }"""
        )
        if where == "BODY":
            break
        assert width >= 2, where
        reached.add(where.removeprefix("panel "))
    assert {"map", "queries", "query", "members", "log"} <= reached


def test_cards_and_the_chart_are_read_with_arrows(page: Page) -> None:
    cards = page.locator(".card")
    cards.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(cards.nth(1)).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Escape")
    expect(cards.nth(1)).to_have_attribute("aria-expanded", "false")
    chart = page.get_by_role("slider", name="Network usage over time")
    expect(chart).to_have_attribute("aria-valuemax", re.compile(r"^([3-9]|\d\d+)$"))
    chart.focus()
    page.keyboard.press("Home")
    expect(chart).to_have_attribute("aria-valuenow", "0")
    page.keyboard.press("ArrowRight")
    expect(chart).to_have_attribute("aria-valuenow", "1")
    expect(page.locator("#query-usage .keys")).to_contain_text("at ")


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_text_is_legible_by_day_and_night(page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    expect(page.locator(".card")).to_have_count(7)
    page.get_by_role("slider").first.wait_for()
    paper = page.evaluate("() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert max(paper) < 60 if scheme == "dark" else min(paper) > 200
    contrasts = page.evaluate(CONTRASTS, READ)
    assert {selector: ratio for selector, ratio in contrasts.items() if ratio < 4.5} == {}


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_a_telephone_shows_all_without_scrolling_sideways(browser: Browser, cluster: LocalCluster) -> None:
    small = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True, "is_mobile": True}
    with looking(browser, cluster["london"].client.api, **small) as page:
        expect(page.locator(".card")).to_have_count(7)
        expect(page.locator("#streams tbody tr")).to_have_count(4)
        page.get_by_role("slider").first.wait_for()
        page.locator(".card.operator").first.tap()
        expect(page.locator("#part pre")).to_be_visible()
        assert page.evaluate("() => document.documentElement.scrollWidth") == 390
        beyond = page.evaluate(
            """() => [...document.querySelectorAll("main *")].filter((element) => {
              const box = element.getBoundingClientRect();
              const hidden = element.closest(".visually-hidden, thead, svg, .choice code");
              return !hidden && box.width && (box.left < 0 || box.right > 390);
            }).map((element) => element.outerHTML.slice(0, 80))"""
        )
        assert beyond == []
        page.touchscreen.tap(*middle(page, "frankfurt"))
        expect(page.locator("#place-title")).to_have_text("frankfurt")


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.only_in_test_all("pages of the dashboard"))])
def test_the_reason_of_a_waiting_source_is_whole_on_narrow_pages(page: Page, cluster: LocalCluster, width: int) -> None:
    client, wide = cluster["london"].client, page.viewport_size
    assert wide is not None
    page.set_viewport_size({"width": width, "height": 844})
    schema = (Column("ts", "timestamp"), Column("line", "string"))
    client.create_stream(StreamDeclaration(name="waits", schema=schema, event_time="ts"))
    try:
        options = {"url": "mqtt://127.0.0.1:1", "topic": "sites/oslo/climate", "format": "text", "stamp": True}
        client.attach_source(SourceDeclaration(stream="waits", name="oslo", node="london", connector="mqtt", options=options))
        state = page.locator("#streams .badge", has_text="Connection refused")
        expect(state).to_be_visible()
        expect(page.locator("#streams tr.gone")).to_contain_text(["oslo at london"])
        assert page.evaluate("() => document.documentElement.scrollWidth") == width
        box = state.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        assert not state.evaluate("(element) => element.scrollWidth > element.clientWidth")
    finally:
        page.set_viewport_size(wide)
        client.drop_stream("waits")


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_a_hidden_page_requests_nothing(browser: Browser, cluster: LocalCluster) -> None:
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with looking(browser, cluster["london"].client.api, clock=True) as page:
        expect(page.locator(".card")).to_have_count(7)
        page.evaluate(hide, True)
        expect(page.locator("#connection")).to_have_text("Paused while the page is hidden")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.run_for(20_000)
        assert asked == []
        page.evaluate(hide, False)
        expect(page.locator("#connection")).to_have_text("Live")
        with page.expect_request("**/v1/members"):
            pass
