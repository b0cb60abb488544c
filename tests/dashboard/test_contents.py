"""The dashboard of a running cluster in a real browser, against the API's answers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from sbon.local.cluster import LocalCluster
from sbon.model import SinkSpec, Submission
from tests.dashboard.conftest import ARCHIVED, MARKUP, QUERY, SQL
from tests.dashboard.looking import PATIENCE_MS, looking, middle, texts
from tests.live.world import wait_for

pytestmark = pytest.mark.live

NODES = ["frankfurt", "london", "new-york", "singapore"]
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def planner(browser: Browser, cluster: LocalCluster) -> Iterator[Page]:
    """The page of the node that plans, and so makes the decisions."""
    with looking(browser, cluster["new-york"].client.api) as opened:
        yield opened


def row(page: Page, table: str, first: str) -> dict[str, str]:
    """The cells of a table's row by the heads of their columns."""
    heads = texts(page, f"#{table} thead th")
    cells = page.locator(f"#{table} tbody tr", has=page.locator(f"th:text-is('{first}'), th button:text-is('{first}')"))
    return dict(zip(heads, [text.strip() for text in cells.first.locator("th, td").all_inner_texts()], strict=True))


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_the_map_shows_nodes_what_is_on_them_and_what_flows(page: Page) -> None:
    link = page.locator("[data-link='new-york singapore']")
    expect(link.locator("title")).to_have_text(re.compile(r"^new-york to singapore: [\d.]+ k?B/s, 1\d\d ms latency$"))
    assert sorted(node.get_attribute("data-node") for node in page.locator(".node").all()) == NODES
    label = page.locator("[data-node='new-york']")
    expect(label).to_have_attribute("aria-label", re.compile(r"^new-york, alive, \d+ ms away, load .*, 4 sources, 3 operators$"))
    expect(page.locator("[data-node='singapore']")).to_have_attribute("aria-label", re.compile(", 1 sink$"))
    expect(page.locator("[data-node='london'] .name")).to_have_text("london, this node")
    assert float(link.locator(".traffic").get_attribute("stroke-width") or 0) > 1

    def is_in_order() -> bool:
        drawn = {name: page.locator(f"[data-node='{name}'] .hit").bounding_box() for name in NODES}
        places = {name: (box["x"], box["y"]) for name, box in drawn.items() if box}

        def apart(a: str, b: str) -> float:
            return math.dist(places[a], places[b])

        return apart("london", "frankfurt") < apart("london", "new-york") < apart("new-york", "singapore")

    wait_for(is_in_order, "the coordinates are near the latencies")


def test_a_node_is_shown_closely(page: Page) -> None:
    page.locator("#members").get_by_role("button", name="new-york").click()
    expect(page.locator("#place-title")).to_have_text("new-york")
    place = page.locator("#place")
    expect(place).to_contain_text("source readings/harbour, running")
    expect(place).to_contain_text(re.compile(r"to singapore: [\d.]+ k?B/s, 1\d\d ms latency"))

    def is_shown() -> bool:
        """Point at the node again if it has moved meanwhile."""
        page.mouse.move(*middle(page, "singapore"))
        return page.locator("#place-title").inner_text() == "singapore"

    wait_for(is_shown, "the node under the pointer is shown")
    expect(place).to_contain_text(f"sink of {QUERY}, running")
    page.mouse.move(0, 0)
    page.keyboard.press("Escape")


def part_fact(page: Page, name: str) -> Locator:
    return page.locator("#part dl > div", has=page.locator(f"dt:text-is('{name}')")).locator("dd")


def test_the_plan_tells_rates_selectivities_and_watermarks(page: Page, cluster: LocalCluster) -> None:
    explanation = cluster["london"].client.explain_query(QUERY)
    assert sorted(card.get_attribute("data-part") for card in page.locator(".card").all()) == sorted(
        part.id for part in explanation.components
    )
    harbour = page.locator(".card.source", has_text="harbour")
    expect(harbour.locator(".flow")).to_have_text(re.compile(r"^\d+ rows/s, [\d.]+ k?B/s$"))
    expect(harbour.locator(".time")).to_have_text(re.compile(r"^[\d:]{8}, [\d.]+ (s|ms|min) ago$"))
    operator = page.locator(".card.operator").first
    expect(operator.locator(".passes")).to_have_text(re.compile(r"^[\d.]+ % of rows pass$"))
    lags = page.locator(".card.operator .time")
    expect(lags.filter(has_text=re.compile(r"behind|20\d\d-")).nth(1)).to_be_visible()
    expect(page.locator(".card.sink .flow")).to_have_text(re.compile(r"^[\d.]+k? rows taken$"))
    operator.click()
    expect(page.locator("#part pre")).to_contain_text("SELECT")
    expect(page.locator("#part")).to_contain_text("Rows passed, planned")
    expect(part_fact(page, "Durability")).to_have_text("local")
    expect(part_fact(page, "Epoch")).to_have_text("1")
    expect(part_fact(page, "Backup")).to_have_count(0)


@pytest.mark.only_in_test_all("pages of the dashboard")
def test_the_plan_of_a_query_that_is_over_flows_no_more_and_nothing_is_odd_about_it(
    browser: Browser, cluster: LocalCluster
) -> None:
    cluster["new-york"].client.submitted(
        Submission(sql="SELECT site, ts FROM readings WHERE value > 0.5e0", name="short", strategy="producer")
    )
    client = cluster["london"].client
    client.stop_query("short")
    with looking(browser, client.api, query="short") as page:
        flows = page.locator(".card.operator .flow")
        expect(flows.first).to_have_text(re.compile("rows, ended$"))
        assert all(told.endswith("rows, ended") for told in flows.all_inner_texts())
        expect(page.locator(".card.operator.odd")).to_have_count(0)


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_a_query_is_shown_with_its_text_as_text(page: Page, cluster: LocalCluster) -> None:
    expect(page.locator("#query-title")).to_have_text(f"Query {QUERY}")
    expect(page.locator(".sql")).to_have_text(SQL)
    expect(page.locator(f"[data-query='{QUERY}'] code")).to_contain_text(MARKUP)
    assert page.locator("img").count() == 0
    lost = cluster["london"].client.query(QUERY).survival
    assert lost is not None
    assert "new-york is its generator source readings/harbour, " in lost.text
    expect(page.get_by_text(lost.text)).to_be_visible()
    expect(page.locator("#why tbody tr")).to_have_count(3)
    expect(page.locator("#why tbody tr").first).to_contain_text("new-york")
    page.get_by_role("button", name="Compare the alternatives now").click()
    expect(page.locator("#why [role=status]")).to_have_text("Compared by the latencies known now.")
    page.locator("summary", has_text="What other strategies would do").click()
    expect(page.locator("#why")).to_contain_text("relaxation")


def test_network_usage_over_time(page: Page) -> None:
    chart = page.get_by_role("slider", name="Network usage over time")
    expect(chart).to_have_attribute("aria-valuetext", re.compile(r"as placed [\d.]+ k?B, all rows .* [\d.]+ k?B$"))
    expect(page.locator("#query-usage .total")).to_have_text(
        re.compile(r"^So far .* all rows sent to the consumer: \d\d % less\.$")
    )
    assert page.locator(".line.placed[d^='M']").count() == 2  # the line, and its sample in the key


def test_the_query_comes_first_with_charts_of_how_it_went(page: Page) -> None:
    assert page.locator("main section").first.get_attribute("id") == "query-section"
    for name in ("Rows a second", "Lag", "Batch time", "Back-pressure"):
        expect(page.get_by_role("slider", name=f"{name} over time")).to_be_visible()
    rates = page.get_by_role("slider", name="Rows a second over time")
    expect(rates).to_have_attribute("aria-valuetext", re.compile(r"read [1-9]\d*/s, delivered [\d.]+/s$"))


def fact(page: Page, name: str) -> str:
    return page.locator("#query-progress dl > div", has=page.locator(f"dt:text-is('{name}')")).locator("dd").inner_text()


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_a_query_that_ends_shows_how_far_it_is_and_then_that_it_has_read_all(browser: Browser, cluster: LocalCluster) -> None:
    client = cluster["london"].client
    sql = "SELECT ts, site, value FROM archive WHERE value < 2e0"
    sink = SinkSpec(kind="blackhole")
    cluster["new-york"].client.submitted(Submission(sql=sql, name="reread", strategy="producer", consumer="london", sink=sink))
    with looking(browser, client.api, query="reread") as page:
        bar = page.get_by_role("progressbar", name="Progress")
        told = page.locator("#query-progress .far")
        expect(told).to_have_text(re.compile(r"^[1-9]\d? % of the sources read$"))
        shown = int(bar.get_attribute("aria-valuenow") or -1)
        known = client.query("reread").progress
        assert known is not None
        assert known.read_share is not None
        assert 0 < shown <= 100 * known.read_share
        assert re.fullmatch(r"[\d.]+k?, [\d.]+k? rows/s", fact(page, "Rows read"))
        assert re.fullmatch(r"about [\d.]+ (s|min)", fact(page, "Time left"))
        width = bar.locator(".fill").evaluate("(fill) => 100 * fill.offsetWidth / fill.parentElement.clientWidth")
        assert abs(width - int(bar.get_attribute("aria-valuenow") or -1)) <= 6
        expect(told).to_have_text("Finished: all of the sources read")
        expect(bar).to_have_attribute("aria-valuenow", "100")
        assert fact(page, "Rows read") == fact(page, "Rows delivered") == f"{ARCHIVED // 1000}k"
        expect(page.locator("#query-progress dt")).to_have_text(["Rows read", "Rows delivered"])


def test_a_query_without_an_end_says_so_and_shows_no_share(page: Page) -> None:
    expect(page.locator("#query-progress .far")).to_have_text("No end: readings/harbour at new-york, readings/park at new-york")
    bar = page.get_by_role("progressbar", name="Progress")
    expect(bar).to_have_class("bar endless good")
    assert bar.get_attribute("aria-valuenow") is None
    expect(page.locator("#query-progress dt")).to_have_text(["Rows read", "Rows delivered", "Lag"])


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_only_what_is_new_of_the_history_is_asked_for(page: Page) -> None:
    with page.expect_response(re.compile(r"/v1/queries/[^/]+/usage\?after_ms=\d{13}$")) as answered:
        pass
    after = int(answered.value.url.rpartition("=")[2])
    assert all(after < point["at_ms"] < after + 60_000 for point in answered.value.json()["history"])


@pytest.mark.only_in_test_all("pages of the dashboard")
def test_nothing_is_cut_off_or_written_over_another(browser: Browser, cluster: LocalCluster) -> None:
    """Lines of cards, marks of the charts' time, and panels; also where there is no query."""
    cut = """() => [...document.querySelectorAll(".card > span:not(.doing), .keys, .far")]
      .filter((e) => e.clientWidth && e.scrollWidth > e.clientWidth).map((e) => e.textContent)"""
    marks = """() => [...document.querySelectorAll("svg.chart")].filter((e) => e.getClientRects().length).flatMap((chart) => {
      const all = [...chart.querySelectorAll(".axes text")].map((text) => text.getBoundingClientRect());
      const low = Math.max(...all.map((box) => box.top));
      const along = all.filter((box) => box.top > low - 2).sort((a, b) => a.left - b.left);
      return along.flatMap((box, i) => (i && box.left < along[i - 1].right + 4 ? [[box.left, along[i - 1].right]] : []));
    })"""
    panels = """(without) => {
      if (without) document.getElementById("query-details").hidden = true;
      const boxes = [...document.querySelectorAll(".panel")].map((panel) => [panel.className, panel.getBoundingClientRect()]);
      return boxes.flatMap(([name, a], i) => boxes.slice(0, i)
        .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)
        .map(([other]) => [name, other]));
    }"""
    for width in (1440, 1100, 390):
        with looking(browser, cluster["london"].client.api, query=QUERY, viewport={"width": width, "height": 900}) as page:
            expect(page.locator(".card.source .flow").first).to_have_text(re.compile("rows/s"))
            page.get_by_role("slider", name="Rows a second over time").wait_for()
            page.get_by_role("slider", name="Processor over time").wait_for()
            assert page.evaluate(cut) == []
            assert page.evaluate(marks) == []
            assert page.evaluate(panels, False) == []
            assert page.evaluate(panels, True) == []


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_the_machine_of_the_node_is_charted_from_before_the_page_was_opened(planner: Page) -> None:
    memory = planner.get_by_role("slider", name="Memory over time")
    expect(memory).to_have_attribute("aria-valuetext", re.compile(r"node \d+ MB, engine (\d+ MB|[\d.]+ GB)$"))
    expect(planner.get_by_role("slider", name="Processor over time")).to_have_attribute("aria-valuemax", re.compile(r"^\d+$"))
    expect(planner.locator("#machine-title")).to_have_text("Machine of new-york")


def test_the_newest_rows_are_shown(page: Page) -> None:
    expect(page.locator(".sample th")).to_have_text(["site", "value", "ts"])
    cells = page.locator(".sample tbody tr").first.locator("td")
    expect(cells.nth(0)).to_have_text(re.compile("harbour|park|tower"))
    expect(cells.nth(1)).to_have_text(re.compile(r"^0\.9"))


def test_decisions_from_before_the_page_was_opened_are_shown(planner: Page) -> None:
    log = planner.locator("#log li")
    expect(log.filter(has_text=f"{QUERY} running")).to_have_count(1)
    expect(log.filter(has_text=f"{QUERY}: b0 placed at new-york by producer")).to_have_count(1)
    planner.reload()
    planner.locator("#connection", has_text="Live").wait_for()
    expect(log.filter(has_text=f"{QUERY} running")).to_have_count(1)
    expect(log.filter(has_text=f"{QUERY}: b0 placed at new-york by producer")).to_have_count(1)


def test_members_and_streams_are_shown_as_in_the_api(page: Page, cluster: LocalCluster) -> None:
    expect(page.locator("#members-note")).to_have_text("4 of 4 alive")
    version = cluster["london"].client.status().version
    measured = page.locator("#members tbody tr", has_text="singapore").locator("[data-head='Round trip']")
    expect(measured).to_have_text(re.compile(r"^(≈ )?1\d\d ms$"))
    own, other = row(page, "members", "london"), row(page, "members", "singapore")
    assert (own["Round trip"], own["Version"], other["Version"]) == ("here", version, version)
    assert other["State"] == "alive"
    sources = page.locator("#streams tbody tr")
    expect(sources).to_have_count(4)
    harbour = sources.filter(has_text="harbour at new-york")
    expect(harbour.locator("[data-head='Rate']")).to_have_text(re.compile(r"^\d+ rows/s$"))
    expect(harbour.locator("[data-head='Late']")).to_have_text(re.compile(r"^[1-9]"))
    tower = sources.filter(has_text="tower at new-york")
    expect(tower.locator("[data-head='Dead letters']")).to_contain_text("1 in /")
    expect(tower.locator("[data-head='State']")).to_have_text("ended")


@pytest.mark.one_part_per_commit("pages in a browser", parts=6)
def test_events_are_logged_on_the_page(planner: Page, cluster: LocalCluster) -> None:
    expect(planner.locator("#log-note")).to_have_text("")
    client = cluster["new-york"].client
    client.submitted(Submission(sql=SQL, name="again", strategy="producer", consumer="singapore"))
    log = planner.locator("#log li")
    expect(log.filter(has_text="placed at new-york by producer").first).to_be_visible()
    expect(log.filter(has_text="again running")).to_be_visible()
    client.stop_query("again")
    expect(log.filter(has_text="again stopped")).to_be_visible()
    planner.get_by_role("checkbox", name="queries").uncheck()
    expect(log.filter(has_text="again stopped")).to_have_count(0)
    planner.get_by_role("checkbox", name="queries").check()
