"""``sbon explain placement``, and the options that say how a query is placed: what the node is asked, what is shown and drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_cli.commands.queries.explain import show_placement
from sbon_node.papers.table import STRATEGIES
from sbon_protocol.api.explanations import PlacementExplanation
from sbon_protocol.api.queries import QuerySpec, Submission
from sbon_protocol.errors import SbonError
from tests.api.explained_placement import explained_placement
from tests.cli.commands import on_a_terminal, run

WISHES = ("--strategy", "auto", "--objective", "usage=1,delay=50", "--max-delay", "80ms", "--min-throughput", "10kB/s")
WISHED = {"strategy": "auto", "objective": "usage=1,delay=50", "max_delay_ms": 80.0, "min_throughput_bytes_s": 10_000.0}


def test_the_options_of_placement_reach_the_node(api: str, node: Any) -> None:
    assert run(api, "submit", "-q", "--no-follow", *WISHES, "SELECT 1").exit_code == 0
    assert node.submitted == [Submission(sql="SELECT 1", **WISHED)]
    for verb in (("explain",), ("explain", "plan"), ("explain", "placement")):
        assert run(api, *verb, *WISHES, "SELECT 1").exit_code == 0
    assert node.asked == [QuerySpec(sql="SELECT 1", **WISHED)] * 3
    assert run(api, "explain", "placement", "--adapt", "local", "SELECT 1").exit_code == 0
    assert node.asked[3:] == [QuerySpec(sql="SELECT 1", adapt="local")]


@pytest.mark.parametrize(
    "flags, said",
    [
        (("--objective", "speed"), "there is no objective 'speed'"),
        (("--max-delay", "80"), "--max-delay: '80' is not a duration"),
        (("--max-delay", "0ms"), "--max-delay: '0ms' is less than a millisecond"),
        (("--min-throughput", "10"), "--min-throughput: '10' is no rate: write 500B/s, 10kB/s or 1.5MB/s"),
        (("--min-throughput", "0kB/s"), "'0kB/s' is no rate"),
        (("--strategy", "best"), "'best' is not one of 'auto', "),
        (("--strategy", "hybird"), "'centralized'. Did you mean hybrid?"),
        (("--adapt", "Locl"), "Did you mean local?"),
    ],
)
def test_contradictory_options_are_refused_before_a_request(api: str, node: Any, flags: tuple[str, ...], said: str) -> None:
    result = run(api, "submit", *flags, "SELECT 1")
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert node.submitted == []


def test_one_word_is_a_query_and_more_are_sql(api: str, node: Any) -> None:
    found = msgspec.json.decode(run(api, "explain", "placement", "q1", "--json").stdout, type=PlacementExplanation)
    assert (found.query, found.state, found.strategy, found.max_delay_ms) == ("q1", "running", "consumer", 40.0)
    assert node.asked == []
    assert run(api, "explain", "placement", "q2").exit_code == 1
    planned = msgspec.json.decode(run(api, "explain", "placement", "SELECT 1", "--json").stdout, type=PlacementExplanation)
    assert planned == explained_placement("", QuerySpec(sql="SELECT 1"))


def test_a_terminal_shows_tree_candidates_strategies_bounds_and_what_would_change_it(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "120")
    shown = run(api, "explain", "placement", "q1")
    assert shown.exit_code == 0, shown.output
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    for line in (
        "q1 running; by consumer (now hybrid), for usage, rows to a",
        "by the planned rates; for the measured ones: sbon explain --query q1",
        "consumer at a",
        "└─ q.b0 at a, 80.0 ms from the best point for it 20.0 kB/s over 50.0 ms (coordinates, 12 s ago)",
        "└─ source/numbers@1/x at b 80.0 kB/s over ? ms (unknown)",
        "it costs 4.0 kB, delay 50.0 ms, 10.0 ms over",
        "now it would be q.b0 at b: 1.0 kB, delay 50.0 ms",
        "q.b0 at a, now b",
        "b 1.2 1.1 kB 1.0 kB 1.50 chosen",
        "a 80.0 4.1 kB 4.0 kB 1.50 costs 300.0% more",
        "full 9.0 - - - 0.01 cores free, 0.10 needed",
        "hybrid 1.0 kB -75.0% 50.0 7",
        "cores a 1.50 0.10 1.40",
        "cores away ? 0.10 ?",
        "a - b 50.0 coordinates, 12 s ago below 12.5 ms q.b0 to full",
        "3 other latencies that are not measured lately would change nothing",
    ):
        assert line in lines, f"{line!r} is not in\n{shown.stdout}"
    assert "ip-multicast - - - - no-routes: which routers" in " ".join(lines)


def test_strategies_are_shown_together_if_they_share_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    show_placement(explained_placement("q1", QuerySpec(sql="SELECT 1")))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for name in ("hybrid", "consumer", "ip-multicast"):
        assert f"{name} {STRATEGIES.profiles[name].knows} {STRATEGIES.profiles[name].sends}" in lines
    assert f"--adapt {STRATEGIES.profiles['hybrid'].adapts}: consumer, hybrid" in lines
    assert f"if a node dies meanwhile {STRATEGIES.profiles['hybrid'].lost}: ip-multicast, consumer, hybrid" in lines
    assert not any(line.startswith("ants ") for line in lines)


@pytest.mark.parametrize(
    "away, again", [("a", "now it would be q.b0 at b"), ("b", "it cannot be placed again as long as source/")]
)
def test_absent_nodes_are_listed_and_without_a_source_no_placement_is_proposed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, away: str, again: str
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    found = explained_placement("q1", QuerySpec(sql="SELECT 1"))
    pinned = {"source/numbers@1/x": "b", "consumer": "c"}
    show_placement(msgspec.structs.replace(found, pinned=pinned, away={away: "is dead"}, settled=1, turns=()))
    shown = capsys.readouterr().out
    what = "q.b0" if away == "a" else "source/numbers@1/x"
    assert f"\n{away} is dead: {what}; its last known latencies count\n" in shown
    assert f"{what} at {away} (is dead)" in shown
    assert again in shown
    assert ("now it would be" in shown) == ("best of the candidates" in shown) == (away == "a")
    assert "\n1 other latency that is not measured lately would change nothing\n" in shown


@pytest.mark.parametrize("suffix, head", [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_picture_is_written(api: str, tmp_path: Path, suffix: str, head: bytes) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws pictures, is not installed")
    file = tmp_path / f"placement.{suffix}"
    result = run(api, "explain", "placement", "SELECT 1", "--out", str(file), "--json")
    assert result.exit_code == 0, result.output
    assert file.read_bytes().startswith(head)
    assert result.stderr == f"written: {file}\n"
    assert json.loads(result.stdout)["operators"][0]["node"] == "b"


def test_the_picture_shows_the_query(tmp_path: Path) -> None:
    """The text of an SVG names every node that has a place, and the operator."""
    figure = pytest.importorskip("matplotlib", reason="matplotlib, which draws pictures, is not installed")
    from sbon_cli.commands.queries.explain import save

    found = explained_placement("", QuerySpec(sql="SELECT 1"))
    with figure.rc_context({"svg.fonttype": "none"}):
        save(found, tmp_path / "placement.svg")
    drawn = (tmp_path / "placement.svg").read_text()
    assert [name for name in ("a", "b", "full", "q.b0", "best point for an operator", "host") if f">{name}<" not in drawn] == []
    assert ">new<" not in drawn
    with pytest.raises(SbonError) as refused:
        save(msgspec.structs.replace(found, nodes=()), tmp_path / "nothing.svg")
    assert refused.value.code == "nobody-placed"


def test_a_kind_of_picture_that_is_not_written_is_refused_first(api: str, node: Any) -> None:
    result = run(api, "explain", "placement", "SELECT 1", "--out", "placement.xyz")
    assert (result.exit_code, node.asked) == (2, [])
    assert "--out: 'placement.xyz' does not end in .png, .svg, .pdf" in result.stderr
