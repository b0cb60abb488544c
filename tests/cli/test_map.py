"""``sbon map``: the cost space with characters, as a file and as JSON."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbon_cli.commands.nodes.map import CELL_ASPECT, LISTED, NARROWEST, ROWS, drawn, label
from sbon_protocol.api.nodes import MemberInfo
from tests.cli.commands import on_a_terminal, run
from tests.cli.test_main import on_a_terminal as on_a_real_terminal


def member(name: str, coordinate: tuple[float, ...] | None, state: str = "alive") -> MemberInfo:
    return MemberInfo(
        name=name,
        state=state,
        address="h:1",
        api="h:2",
        incarnation=1,
        coordinate=coordinate,
        rtt_ms=None,
        measured=False,
        height_ms=None if coordinate is None else 2.5,
        load_ms=None if coordinate is None else 7.0,
    )


MEMBERS = [
    member("london", (0.0, 0.0, 0.0)),
    member("paris", (0.0, 8.0, 0.0)),
    member("tokyo", (240.0, 0.0, 0.0)),
    member("lima", (0.0, 120.0, 0.0), "suspect"),
    member("new", None),
    member("gone", (900.0, 0.0, 0.0), "dead"),
]


@pytest.fixture
def mapped(node: Any) -> None:
    node.members = lambda near="", within_ms=None: MEMBERS


@pytest.mark.usefixtures("mapped")
def test_every_live_member_is_on_the_map_at_its_distance(api: str) -> None:
    result = run(api, "map", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    places = {place["name"]: (place["x_ms"], place["y_ms"]) for place in found["places"]}
    assert list(places) == ["london", "paris", "tokyo", "lima"]
    assert (found["unplaced"], found["shown"]) == (["new"], 1.0)
    assert {place["height_ms"] for place in found["places"]} == {2.5}
    for a, b, ms in (("london", "paris", 8), ("london", "tokyo", 240), ("tokyo", "lima", (240**2 + 120**2) ** 0.5)):
        (ax, ay), (bx, by) = places[a], places[b]
        assert ((ax - bx) ** 2 + (ay - by) ** 2) ** 0.5 == pytest.approx(ms, abs=0.01)


@pytest.mark.usefixtures("mapped")
def test_a_terminal_of_eighty_columns_shows_it_with_a_scale(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    result = run(api, "map")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [name for name in ("london", "paris", "tokyo", "lima") if name not in result.stdout] == []
    assert result.stdout.count("•") == 4
    assert "gone" not in result.stdout
    assert any(line.startswith("├─") and line.endswith("┤ 50 ms") for line in lines)
    assert lines[-1] == "4 nodes; two axes show 100% of the spread; heights add 2.5 to 2.5 ms a node; no coordinate: new"
    assert max(map(len, lines[:-1])) <= 80


def test_a_real_terminal_gets_it_too(api: str) -> None:
    text = on_a_real_terminal(80, "--node", api, "map")
    assert "a•" in text or "•a" in text


@pytest.mark.usefixtures("mapped")
@pytest.mark.parametrize("suffix, head", [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_file_is_written(api: str, tmp_path: Path, suffix: str, head: bytes) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws pictures, is not installed")
    file = tmp_path / f"map.{suffix}"
    result = run(api, "map", "--out", str(file), "--json")
    assert result.exit_code == 0, result.output
    assert file.read_bytes().startswith(head)
    assert result.stderr == f"written: {file}\n"
    assert len(json.loads(result.stdout)["places"]) == 4


def test_an_unwritable_or_empty_picture_is_reported(api: str, node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--out: 'map.xyz' does not end in .png, .svg, .pdf" in run(api, "map", "--out", "map.xyz").stderr
    node.members = lambda near="", within_ms=None: MEMBERS[4:]
    result = run(api, "map")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines() == ["error: no node has a coordinate yet", "  hint: ask again in some seconds"]
    node.members = lambda near="", within_ms=None: MEMBERS
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run(api, "map", "--out", str(tmp_path / "map.png"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "matplotlib, which draws pictures, is not installed" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(api: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws pictures, is not installed")
    file = tmp_path / "none" / "map.png"
    result = run(api, "map", "--out", str(file))
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == f"error: {file}: cannot be written: No such file or directory"


milliseconds = st.floats(-500, 500) | st.sampled_from([0.0, 1e-9])
points = st.lists(
    st.tuples(st.text("abc-", min_size=1, max_size=30), milliseconds, milliseconds),
    min_size=1,
    max_size=40,
    unique_by=lambda p: p[0],
)


@settings(max_examples=50)
@given(points, st.integers(0, 200))
def test_no_line_is_too_long_and_every_name_is_there_or_counted(points: list[tuple[str, float, float]], width: int) -> None:
    lines = drawn(points, width)
    assert all(len(line) <= max(width, NARROWEST) for line in lines)
    assert len(lines) <= ROWS + 4 + LISTED
    assert 1 <= sum(line.count("•") for line in lines) <= len(points)
    assert any(line.startswith("├") and line.endswith(" ms") for line in lines)
    text = "\n".join(lines)
    assert all(name in text for name, _, _ in points) or any(sign in text for sign in ("+", "…", "names without space"))


def test_long_names_on_one_line_have_space_above_and_below() -> None:
    places = [("frankfurt-am-main", 0.0, 0.0), ("london-docklands-1", 5.0, 0.0), ("amsterdam-science", 10.0, 0.0)]
    lines = drawn(places, 40)
    assert [name for name, _, _ in places if name not in "\n".join(lines)] == []
    assert not any(line.startswith("names without space") for line in lines)


def test_names_without_space_are_listed_whole() -> None:
    places = [(f"node-with-a-long-name-{i}", i * 1.0, 0.0) for i in range(7)]
    lines = drawn(places, 60)
    assert any(line.startswith("names without space: node-with") for line in lines)
    assert [name for name, _, _ in places if name not in "\n".join(lines)] == []
    assert max(map(len, lines)) <= 60
    many = drawn([(f"node-with-a-long-name-{i}", i * 0.1, 0.0) for i in range(70)], 60)
    assert many[-1].endswith(" …")


def test_a_millisecond_is_as_long_upwards_as_to_the_right() -> None:
    grid = drawn([("w", 0.0, 0.0), ("e", 100.0, 0.0), ("n", 0.0, 100.0)], 60)
    rows, columns = zip(*((row, line.index("•")) for row, line in enumerate(grid) if "•" in line), strict=True)
    east = grid[rows[-1]].rindex("•") - columns[-1]
    assert east == pytest.approx((rows[-1] - rows[0]) * CELL_ASPECT, abs=CELL_ASPECT)
    scale = next(line for line in grid if line.startswith("├"))
    assert len(scale.split()[0]) * 100 / float(scale.split()[1]) == pytest.approx(east, rel=0.1)


def test_names_do_not_hide_dots_or_each_other() -> None:
    rng = random.Random(2)
    places = [(f"node-{i}", rng.gauss(0, 100), rng.gauss(0, 50)) for i in range(20)]
    text = "\n".join(drawn(places, 100))
    left_out = next((len(line.split(",")) for line in text.splitlines() if line.startswith("names")), 0)
    words = text.replace("•", " ").replace(",", " ").split()
    assert sum(name in words for name, _, _ in places) >= 20 - left_out - text.count("+")
    assert left_out <= 2


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
@pytest.mark.parametrize("seed", range(4))
def test_no_name_in_a_picture_is_cut_off_or_covers_another(seed: int) -> None:
    """Neither beside the frame, where the axis for load is, nor upon a neighbour's."""
    from matplotlib.figure import Figure

    rng = random.Random(seed)
    points = [(f"site-with-a-name-{n}", rng.uniform(0, 200), rng.uniform(0, 100)) for n in range(8)]
    points += [("frankfurt", 80.0, 50.0), ("london", 84.0, 50.0)]
    figure = Figure()
    axes = figure.add_subplot()
    dots = axes.scatter([x for _, x, _ in points], [y for _, _, y in points], c=[0.0] * len(points))
    figure.colorbar(dots)
    axes.set_aspect("equal", adjustable="datalim")
    label(figure, axes, points)
    figure.draw_without_rendering()
    frame = axes.get_window_extent()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == len(points)
    for box in boxes:
        assert frame.x0 <= box.x0 <= box.x1 <= frame.x1
        assert frame.y0 <= box.y0 <= box.y1 <= frame.y1
    assert [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)] == []
