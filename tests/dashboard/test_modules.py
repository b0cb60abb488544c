"""Modules of the page that reckon, run in the browser and compared with what the node itself reckons."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from sbon_cli.local_cluster import LocalCluster
from sbon_node.space.projection import principal_axes
from tests.dashboard.looking import looking


@pytest.fixture(scope="module")
def page(browser: Browser, cluster: LocalCluster) -> Iterator[Page]:
    with looking(browser, cluster["london"].client.api) as opened:
        yield opened


def run(page: Page, module: str, work: str, argument: object = None) -> object:
    """What ``work`` (of the module ``m`` and an argument ``x``) comes to."""
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
    """Two thousand bills, one a second: 3 bytes in flight, 30 were all shipped; with a fall in between that tells nothing."""
    work = """(() => {
      const series = new m.Series();
      for (let i = 0; i < 2000; i++) series.add({ at_ms: 1000 * i, byte_ms: 3000 * i, whole_byte_ms: 30000 * i, history: [] });
      const told = series.inFlight();
      series.add({ at_ms: 2_000_000, byte_ms: 5, whole_byte_ms: 5, history: [{ at_ms: 1, byte_ms: 0, whole_byte_ms: 0 }] });
      return [series.points.length, told.map(({ placed, whole }) => [placed, whole]), series.inFlight().length - told.length];
    })()"""
    length, flying, more = run(page, "series", work)  # type: ignore[misc]
    assert length == 900
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
