"""The page's computing modules, run in the browser and compared with the node's results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from sbon.local.cluster import LocalCluster
from sbon_node.overlay.space.projection import principal_axes
from tests.dashboard.looking import looking


@pytest.fixture(scope="module")
def page(browser: Browser, cluster: LocalCluster) -> Iterator[Page]:
    with looking(browser, cluster["london"].client.api) as opened:
        yield opened


def run(page: Page, module: str, work: str, argument: object = None) -> object:
    """The value of ``work``, an expression in the module ``m`` and an argument ``x``."""
    return page.evaluate(f"async (x) => {{ const m = await import('/dashboard/{module}.js'); return ({work}); }}", argument)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5, 8])
def test_the_axes_are_those_of_the_command_line(page: Page, dimensions: int) -> None:
    points = np.random.default_rng(dimensions).normal(size=(40, dimensions)) * np.arange(10, 10 + 5 * dimensions, 5)
    told = run(page, "principal_axes", "m.principalAxes(x)", points.tolist())
    expected, share = principal_axes(points)
    assert isinstance(told, dict)
    np.testing.assert_allclose(told["points"], expected, atol=1e-8)
    assert told["share"] == pytest.approx(share)


def test_a_map_that_was_turned_is_turned_back(page: Page) -> None:
    rng = np.random.default_rng(7)
    before = rng.normal(size=(12, 2)) * 50
    angle = 2.1
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ np.diag([1.0, -1.0])
    now = before @ turn.T + [30.0, -80.0]
    named = [[[f"n{i}", point] for i, point in enumerate(points.tolist())] for points in (now, before)]
    told = run(page, "principal_axes", "[...m.aligned(new Map(x[0]), new Map(x[1])).values()]", named)
    np.testing.assert_allclose(np.array(told), before, atol=1e-9)


def test_rates_of_links_cover_neither_names_nor_each_other(page: Page) -> None:
    rng = np.random.default_rng(5)
    nodes = [
        {"name": f"n{i}", "x": x, "y": y, "width": 60, "below": 0}
        for i, (x, y) in enumerate(rng.uniform(20, 580, (12, 2)).tolist())
    ]
    work = """(async () => {
      const links = await import("/dashboard/map_links.js");
      const taken = m.takenBy(x, m.labelled(x, 600, 600));
      const known = taken.length;
      for (const a of x) for (const b of x) {
        const shape = a === b ? null : links.linkShape([a.x, a.y], [b.x, b.y], 3);
        if (shape) m.freePlace(shape.labels, 50, taken, 600, 600);
      }
      return [known, taken.map(({ left, top, right, bottom }) => [left, top, right, bottom])];
    })()"""
    known, boxes = run(page, "map_layout", f"await {work}", nodes)  # type: ignore[misc]
    assert len(boxes) > known + 20
    for i, (left, top, right, bottom) in enumerate(boxes[known:], start=known):
        assert [b for b in boxes[:i] if left < b[2] and b[0] < right and top < b[3] and b[1] < bottom] == []


def test_rows_a_second_and_states_come_of_the_points_of_bills(page: Page) -> None:
    """A point every ten seconds; of the first nothing but the sums is known."""
    work = """(() => {
      const series = new m.Series();
      const point = (i) => ({ at_ms: 10000 * i, byte_ms: 0, baseline_byte_ms: 0, rows_in: 1000 * i, rows_out: 20 * i,
                              lag_ms: i, batch_ms: null, held_back: 1 });
      const first = { at_ms: 0, byte_ms: 0, baseline_byte_ms: 0 };
      const known = [first, point(1), point(2), point(3)];
      series.add({ at_ms: 50000, byte_ms: 0, baseline_byte_ms: 0, history: known, now: point(5) });
      return [series.rates(), series.states("lag").map(({ at, lag, held }) => [at, lag, held]), series.states("batch").length];
    })()"""
    rates, states, batches = run(page, "series", work)  # type: ignore[misc]
    assert [(rate["at"], rate["in"], rate["out"]) for rate in rates] == [(at, 100, 2) for at in (20_000, 30_000, 50_000)]
    assert states == [[10_000, 1, 1], [20_000, 2, 1], [30_000, 3, 1], [50_000, 5, 1]]
    assert batches == 0


def test_a_running_batch_and_the_reason_for_waiting_are_shown(page: Page) -> None:
    """0 rows a second of a large batch looked like a standstill."""
    part = {
        "kind": "operator",
        "node": "paris",
        "state": "running",
        "reads": [],
        "reason": "",
        "batch_ms": 800,
        "under_way_s": 42.0,
        "under_way_rows": 1_200_000,
        "under_way_bytes": 340_000_000,
    }
    waits = {"id": "q.b1", "reason": "held back: its subscribers have not received what there is", "under_way_s": None}
    work = """(async () => {
      const { Model } = await import("/dashboard/model.js");
      const [model, parent] = [new Model(), document.createElement("div")];
      new m.RunView(model, parent);
      model.setQueries([{ id: "q", state: "running", submitted_ms: 0 }]);
      model.setExplanation("q", { query: "q", state: "running", links: [], components: x });
      return [...parent.querySelectorAll(".now li")].map((item) => [item.className, item.textContent]);
    })()"""
    told = run(page, "run", f"await {work}", [{**part, "id": "q.b0"}, {**part, **waits}])
    assert told == [
        [
            "batch",
            "b0 at paris: a batch has been under way for 42 s, 1.2M rows, 340 MB read so far; "
            "batches take 800 ms on the average.",
        ],
        ["waits", "b1 at paris waits: held back: its subscribers have not received what there is."],
    ]


def test_a_batch_as_any_other_is_no_news(page: Page) -> None:
    """A line that comes and goes every few seconds would move all that is below."""
    part = {"kind": "operator", "node": "paris", "state": "running", "reads": [], "reason": "", "under_way_rows": 1}
    parts = [
        {**part, "id": f"q.b{i}", "under_way_s": now_s, "batch_ms": usual_ms, "under_way_bytes": 5}
        for i, (now_s, usual_ms) in enumerate([(4.0, 4000), (7.0, 4000), (2.0, None), (4.0, None)])
    ]
    work = """(async () => {
      const { Model } = await import("/dashboard/model.js");
      const [model, parent] = [new Model(), document.createElement("div")];
      new m.RunView(model, parent);
      model.setQueries([{ id: "q", state: "running", submitted_ms: 0 }]);
      model.setExplanation("q", { query: "q", state: "running", links: [], components: x });
      return [...parent.querySelectorAll(".now li")].map((item) => item.textContent);
    })()"""
    assert run(page, "run", f"await {work}", parts) == [
        "b1 at paris: a batch has been under way for 7 s, 1 row, 5 B read so far; batches take 4 s on the average.",
        "b3 at paris: a batch has been under way for 4 s, 1 row, 5 B read so far; its first.",
    ]


@pytest.mark.parametrize(
    "state, reason, share, endless, kind, full, text",
    [
        ("placing", "", None, [], "unknown", None, "Starting"),
        ("running", "", 0.456, [], "good", 0.456, "45 % of the sources read"),
        ("running", "", 0.9999, [], "good", 0.9999, "99 % of the sources read"),
        ("running", "b0 waits", 0.29, [], "waits", 0.29, "29 % of the sources read, waiting"),
        ("running", "", None, ["a at x"], "endless good", None, "No end: a at x"),
        ("running", "b0 waits", None, ["a", "b", "c", "d"], "endless waits", None, "No end: 4 sources, waiting"),
        ("running", "", None, [], "unknown", None, "Share of the sources read is not known"),
        ("finished", "", 0.98, [], "done", 1, "Finished: all of the sources read"),
        ("failed", "no", 0.45, [], "bad", 0.45, "Failed with 45 % of the sources read"),
        ("stopped", "stopped by a user", None, ["a"], "none", None, "Stopped"),
    ],
)
def test_how_far_a_query_is_in_each_of_its_states(
    page: Page, state: str, reason: str, share: float | None, endless: list[str], kind: str, full: float | None, text: str
) -> None:
    info = {"state": state, "reason": reason, "progress": {"read_share": share, "endless": endless}}
    assert run(page, "progress", "m.far(x)", info) == {"kind": kind, "share": full, "text": text}


@pytest.mark.parametrize(
    "reason, under_way_s, told",
    [
        ("", None, "7, 0 rows/s"),
        ("", 42.0, "7, 0 rows/s, a batch under way for 42 s"),
        ("held back", 42.0, "7, 0 rows/s while it waits"),
    ],
)
def test_a_rate_of_nothing_says_why(page: Page, reason: str, under_way_s: float | None, told: str) -> None:
    progress = {"rows_in": 9, "rows_out": 7, "read_share": 0.5, "endless": [], "rows_in_s": 3.0, "rows_out_s": 0.0}
    info = {"id": "q", "state": "running", "reason": reason, "progress": {**progress, "lag_ms": None, "left_s": 90.0}}
    work = """(async () => {
      const { Model } = await import("/dashboard/model.js");
      const [model, parent] = [new Model(), document.createElement("div")];
      new m.ProgressView(model, parent);
      model.setQueries([{ id: "q", state: "running", submitted_ms: 0 }]);
      model.setExplanation("q", { query: "q", state: "running", links: [], components: [{ id: "q.b0", under_way_s: x[1] }] });
      model.infos.set("q", x[0]);
      model.changed("infos");
      return [...parent.querySelectorAll("dl > div")].map((pair) => [...pair.children].map((part) => part.textContent));
    })()"""
    assert run(page, "progress", f"await {work}", [info, under_way_s]) == [
        ["Rows read", "9, 3 rows/s"],
        ["Rows delivered", told],
        ["Time left", "about 1.5 min"],
    ]


def test_names_on_the_map_do_not_cover_each_other(page: Page) -> None:
    rng = np.random.default_rng(3)
    places = rng.uniform(20, 380, size=(60, 2))
    nodes = [{"name": f"n{i}", "x": x, "y": y, "width": 60, "below": 14 * (i % 2)} for i, (x, y) in enumerate(places.tolist())]
    work = """[...m.labelled(x, 400, 400)].flatMap(([name, spot], i) => {
      if (!spot) return [];
      const { anchor, dx, dy } = m.standing(spot, x[i].below);
      const left = x[i].x + dx - { start: 0, middle: x[i].width / 2, end: x[i].width }[anchor];
      return [[left, x[i].y + dy - 11, left + x[i].width, x[i].y + dy + 4 + x[i].below]];
    })"""
    boxes = run(page, "map_layout", work, nodes)
    assert isinstance(boxes, list)
    assert 10 < len(boxes) < 60
    covered = [
        (a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]
    assert covered == []


def test_a_plan_reads_in_one_direction(page: Page) -> None:
    """A diamond: a source that two operators read, a join of both, and a source that only the join reads."""
    reads = {"sink": ["join"], "join": ["left", "right", "late"], "left": ["s"], "right": ["s"], "s": [], "late": []}
    kinds = {"sink": "sink", "s": "source", "late": "source"}
    parts = [{"id": name, "kind": kinds.get(name, "operator"), "reads": below} for name, below in reads.items()]
    placed = run(page, "plan_layout", "m.layered(x).map(({part, layer, row}) => [part.id, layer, row])", parts)
    assert isinstance(placed, list)
    layer = {name: at for name, at, _ in placed}
    assert layer == {"s": 0, "left": 1, "right": 1, "late": 1, "join": 2, "sink": 3}
    assert len({(at, row) for _, at, row in placed}) == len(parts)


def test_a_series_tells_bytes_in_flight_and_stays_short(page: Page) -> None:
    """Two thousand bills, one a second: a usage of 3 bytes, 30 were all rows sent; with a fall in between that tells nothing."""
    work = """(() => {
      const series = new m.Series();
      for (let i = 0; i < 2000; i++) series.add({ at_ms: 1000 * i, byte_ms: 3000 * i, baseline_byte_ms: 30000 * i, history: [] });
      const told = series.usage();
      series.add({ at_ms: 2_000_000, byte_ms: 5, baseline_byte_ms: 5, history: [{ at_ms: 1, byte_ms: 0, baseline_byte_ms: 0 }] });
      const more = series.usage().length - told.length;
      return [series.points.map(({ at }) => at / 1000), told.map(({ placed, whole }) => [placed, whole]), more];
    })()"""
    seconds, flying, more = run(page, "series", work)  # type: ignore[misc]
    assert 600 < len(seconds) <= 900
    assert seconds[0] == 0
    assert seconds[-400:] == list(range(1601, 2001))
    assert {tuple(pair) for pair in flying} == {(3, 30)}
    assert more <= 0


@pytest.mark.parametrize(
    "lines, ticks",
    [
        ([[100, 190], [300, 380]], [0, 100, 200, 300, 400]),
        ([[0, 0, 0], [0, 0, 0]], [0, 0.25, 0.5, 0.75, 1]),
        ([[15, 17, 16], [2100, 72_000, 2300]], [1, 10, 100, 1000, 10_000, 100_000]),
    ],
)
def test_a_chart_has_round_marks_and_both_lines_are_apart_from_its_foot(
    page: Page, lines: list[list[float]], ticks: list[float]
) -> None:
    work = "(() => { const { share, ticks } = m.scaleOf(x); return [ticks, ticks.map(share), x.flat().map(share)]; })()"
    marks, heights, shares = run(page, "chart", work, lines)  # type: ignore[misc]
    assert marks == pytest.approx(ticks)
    assert heights == pytest.approx([i / (len(ticks) - 1) for i in range(len(ticks))])
    assert all(0 <= share <= 1 for share in shares)
    assert all(share > 0.1 for share, value in zip(shares, [v for line in lines for v in line], strict=True) if value)


def test_a_feed_that_fails_waits_longer_each_time_and_not_for_ever(page: Page) -> None:
    work = """[0, 1, 2, 3, 4, 100].map((failures) => {
      const feed = new m.Feed(2000, () => null, () => {});
      feed.failures = failures;
      return feed.pauseMs();
    })"""
    pauses = run(page, "feed", work)
    assert isinstance(pauses, list)
    for pause, expected in zip(pauses, [2000, 4000, 8000, 16_000, 30_000, 30_000], strict=True):
        assert 0.9 * expected <= pause <= 1.1 * expected


@pytest.mark.parametrize(
    "work, text",
    [
        ("m.bytes(0)", "0 B"),
        ("m.bytes(999)", "999 B"),
        ("m.bytes(999.7)", "1.0 kB"),
        ("m.bytes(34200)", "34 kB"),
        ("m.perSecond(3.44e6)", "3.4 MB/s"),
        ("m.perSecond(null)", "–"),
        ("m.share(0.1)", "10 %"),
        ("m.share(0.00123)", "0.12 %"),
        ("m.span(340)", "340 ms"),
        ("m.span(90_000)", "1.5 min"),
        ("m.span(7_200_000)", "2 h"),
        ("m.moment(0)", "1970-01-01 00:00:00"),
        ("m.partName('q1.join', 'q1')", "join"),
        ("m.partName('source/flights@3/jfk', 'q1')", "flights/jfk"),
    ],
)
def test_figures_as_people_read_them(page: Page, work: str, text: str) -> None:
    assert run(page, "format", work) == text


def test_an_operator_glides_to_its_new_node(page: Page) -> None:
    page.emulate_media(reduced_motion="no-preference")
    work = """(async () => {
      const layer = document.createElementNS("http://www.w3.org/2000/svg", "g");
      const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      drawing.append(layer);
      document.body.append(drawing);
      const gliders = new m.Gliders(layer);
      const places = new Map([["paris", [10, 20]], ["london", [110, 20]]]);
      const seen = [];
      const where = () => [...layer.children].map((shape) => [shape.dataset.operator, shape.getBoundingClientRect().x]);
      gliders.show([{ id: "q.b0", node: "paris" }, { id: "q.b1", node: "paris" }, { id: "q.b2", node: "away" }], places);
      seen.push(where());
      gliders.show([{ id: "q.b0", node: "london" }, { id: "q.b1", node: "paris" }, { id: "q.b2", node: "paris" }], places);
      const [[, start]] = where();
      await new Promise((done) => setTimeout(done, 500));
      const amid = where();
      const end = layer.firstChild.style.transform;
      await new Promise((done) => layer.firstChild.addEventListener("transitionend", done));
      seen.push(amid.map(([id, x]) => [id, x > start]), end, where());
      return seen;
    })()"""
    assert run(page, "map_gliders", f"await {work}", None) == [[], [["q.b0", True]], "translate(110px, 20px)", []]


def test_the_map_lets_an_operator_glide_when_its_node_changes(page: Page) -> None:
    page.emulate_media(reduced_motion="no-preference")
    work = """(async () => {
      const { Model } = await import("/dashboard/model.js");
      const [model, parent] = [new Model(), document.createElement("div")];
      Object.assign(parent.style, { width: "600px", height: "400px" });
      document.body.append(parent);
      const map = new m.MapView(model, parent, document.createElement("p"));
      const member = (name, x) => ({ name, state: "alive", coordinate: [x, 1, 2], height_ms: 0, rtt_ms: 1, load_per_core: 0 });
      model.setMembers([member("paris", 0), member("london", 50), member("oslo", 90)]);
      model.setQueries([{ id: "q", state: "running", submitted_ms: 0 }]);
      const gliding = [];
      for (const node of ["paris", "paris", "london"]) {
        const operator = { id: "q.b0", kind: "operator", node, state: "running" };
        model.setExplanation("q", { query: "q", state: "running", links: [], components: [operator] });
        gliding.push(parent.querySelectorAll(".glider").length);
      }
      parent.remove();
      return gliding;
    })()"""
    assert run(page, "map", f"await {work}", None) == [0, 0, 1]


def test_nothing_glides_where_motion_is_reduced(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    work = """(() => {
      const layer = document.createElementNS("http://www.w3.org/2000/svg", "g");
      const gliders = new m.Gliders(layer);
      const places = new Map([["paris", [1, 2]], ["london", [3, 4]]]);
      for (const node of ["paris", "london"]) gliders.show([{ id: "q.b0", node }], places);
      return layer.children.length;
    })()"""
    assert run(page, "map_gliders", work, None) == 0


def test_the_steps_of_a_move_are_shown(page: Page) -> None:
    move = {"target": "london", "progress": {"copied_bytes": 1_200_000, "total_bytes": 4_000_000, "frames_behind": 3}}
    steps = ("stopping", "copying", "following", "settling")
    assert [run(page, "format", "m.moveText(x)", {**move, "step": step}) for step in steps] == [
        "moves to london: stopping",
        "moves to london: copying, 1.2 MB of 4 MB",
        "moves to london: following, 3 frames behind",
        "moves to london: settling",
    ]


def test_a_stream_that_a_query_makes_names_and_chooses_its_query(page: Page) -> None:
    """Of several queries of that name, its own; if that is no longer known, the source has its own name."""
    source = {"stream": "late", "name": "query", "node": "paris", "connector": "query", "options": {"query": "late-aaaaaa"}}
    work = """(async () => {
      const { Model } = await import("/dashboard/model.js");
      const { StreamsView } = await import("/dashboard/streams.js");
      const [model, place, streams, title] = [new Model(), ...["div", "div", "div"].map((name) => document.createElement(name))];
      document.createElement("div").append(title);
      new m.PlaceView(model, place, title);
      new StreamsView(model, streams, document.createElement("p"));
      const paris = { name: "paris", state: "alive", rtt_ms: 1, load_per_core: 0, tags: {}, coordinate: [0, 0] };
      model.setMembers([{ ...paris, address: "a", api: "b" }]);
      model.chooseNode("paris");
      const counts = { rows_s: 1, bytes_s: 1, rows: 1, bytes: 1, late: 0, dropped: 0, bad: 0, too_large: 0 };
      const info = { source: x, state: "running", watermark_ms: null, ...counts };
      model.setStreams([{ entry: { declaration: { name: "late" } }, sources: [info] }]);
      const shown = () => [place.querySelector(".parts .text").textContent, streams.querySelectorAll("tbody td")[0].textContent];
      const told = [shown()];
      const query = (id, uid, submitted_ms) => ({ id, uid, state: "running", submitted_ms });
      model.setQueries([query("other", "other-bbbbbb", 1), query("late", "late-aaaaaa", 0)]);
      told.push(shown(), [model.query]);
      place.querySelector(".parts button").click();
      return [...told, [model.query]];
    })()"""
    assert run(page, "place", f"await {work}", source) == [
        ["source late/query, running", "query at paris"],
        ["stream late, the result of late, running", "result of late at paris"],
        ["other"],
        ["late"],
    ]


def test_an_operator_at_its_beginning_is_not_behind_by_all_the_time_since_1970(page: Page) -> None:
    parts = [
        {"id": "s", "kind": "source", "reads": [], "watermark_ms": 1_767_225_600_000},
        {"id": "o", "kind": "operator", "reads": ["s"], "watermark_ms": 1, "state": "running"},
    ]
    told = run(page, "lag", "m.lag(x[1], new Map(x.map((part) => [part.id, part])), 0)", parts)
    assert told == {"text": "no watermark yet", "behindMs": None}
