"""``sbon experiment nes`` and ``scale`` on small networks: rows as promised, capacities kept, dumps another program can check."""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sbon_cli.main import sbon


def experiment(*options: str) -> dict[str, Any]:
    result = CliRunner().invoke(sbon, ["experiment", *options, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def checked(path: Path) -> list[dict[str, Any]]:
    """The lines of what was placed: usage is that of the placement by the whole matrix, and no host has more than it had room
    for."""
    lines = [line for line in read(path) if "refused" not in line]
    for line in lines:
        whole = np.load(path.parent / line["network"])["latency_ms"]
        at = {vertex: int(node[1:]) for vertex, node in {**line["pinned"], **line["placement"]}.items()}
        usage = sum(e["rate_bytes_s"] * whole[at[e["source"]], at[e["target"]]] / 1000 for e in line["edges"])
        assert usage == pytest.approx(line["usage"])
        if line["optimal_usage"] is not None:
            assert usage >= line["optimal_usage"] * (1 - 1e-9)
        if line.get("optimum_with_capacity") is not None:
            assert line["optimal_usage"] * (1 - 1e-9) <= line["optimum_with_capacity"] <= usage * (1 + 1e-9)
        if "free_cores" in line:
            for node, count in Counter(line["placement"].values()).items():
                assert count * line["cores_needed"] <= line["free_cores"][line["hosts_allowed"].index(node)] + 1e-5
    return lines


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize(
    "options, queries",
    [
        (("--topology", "ts100", "--queries", "4", "--seeds", "1"), 4),
        pytest.param(("--queries", "3", "--seeds", "1,2"), 6, marks=pytest.mark.only_in_test_all("experiments of today's size")),
    ],
    ids=["small", "large"],
)
def test_nes_has_a_row_for_each_strategy_size_and_number_of_iterations(
    tmp_path: Path, options: tuple[str, ...], queries: int
) -> None:
    sizes, rounds = ("--sources", "2", "--sources", "6"), ("--iterations", "3", "--iterations", "300")
    found = experiment("nes", *options, *sizes, *rounds, "--dump", str(tmp_path))
    again = experiment("nes", *options, *sizes[:2], *rounds)
    stripped = [[{**row, "cpu_ms": 0} for row in one["rows"] if row["sources"] == 2] for one in (found, again)]
    assert stripped[0] == stripped[1]
    rows = {(row["sources"], row["strategy"], row["iterations"]): row for row in found["rows"]}
    every = [("bottom-up", None), ("top-down", None), ("ifcop", 3), ("ifcop", 300), ("local-search", None), ("hybrid", None)]
    assert list(rows) == [(sources, *one) for sources in (2, 6) for one in every]
    for row in rows.values():
        assert (row["overloaded"], row["refused"], row["queries"]) == (0, 0, queries)
        assert row["ratio_mean"] >= row["optimum_ratio_mean"] >= 1
        assert row["operators"] == 2 * row["sources"] - 1
    six = {one: rows[6, *one]["ratio_mean"] for one in every}
    assert six["local-search", None] < min(six["bottom-up", None], six["ifcop", 300])
    assert six["ifcop", 300] < six["ifcop", 3]
    assert six["bottom-up", None] < six["top-down", None]
    assert len(checked(tmp_path / "nes.jsonl")) == queries * 2 * len(every)


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_scale_counts_what_placements_take_and_fills_the_nodes(tmp_path: Path) -> None:
    command = ("scale", "--topology", "ts100", "--queries", "2", "--operators", "1", "--operators", "3", "--sequence", "120")
    found = experiment(*command, "--dump", str(tmp_path))
    sizes = {(row["strategy"], row["operators"]): row for row in found["rows"] if row["part"] == "size"}
    assert set(sizes) == {(strategy, size) for strategy in ("hybrid", "relaxation") for size in (1, 3)}
    for row in sizes.values():
        assert row["cpu_ms"] > 0
        assert row["memory_mb"] > 0
        assert row["ratio_mean"] >= 1
    assert sizes["hybrid", 1]["probes_mean"] < sizes["hybrid", 3]["probes_mean"]
    assert sizes["hybrid", 3]["ratio_mean"] < sizes["relaxation", 3]["ratio_mean"]
    turns = {(row["strategy"], row["first_query"]): row for row in found["rows"] if row["part"] == "sequence"}
    assert set(turns) == {(strategy, first) for strategy in ("hybrid", "relaxation") for first in (0, 100)}
    for strategy in ("hybrid", "relaxation"):
        first, last = turns[strategy, 0], turns[strategy, 100]
        assert first["queries"] + last["queries"] == 120
        assert 70 < first["filled_pct"] < last["filled_pct"] <= 100
        assert 1 <= first["optimum_ratio_mean"] <= first["ratio_mean"]
    lines = checked(tmp_path / "scale.jsonl")
    placed = [line for line in lines if line["part"] == "sequence" and line["strategy"] == "hybrid"]
    assert len(placed) == 120 - turns["hybrid", 0]["refused"] - turns["hybrid", 100]["refused"]
    refused = [line for line in read(tmp_path / "scale.jsonl") if "refused" in line]
    assert len(refused) == sum(row["refused"] for row in turns.values()) > 0
    assert all((line["refused"], line["placement"]) == ("no-capacity", {}) and line["edges"] for line in refused)
    for before, after in itertools.pairwise(placed):
        used = np.array(before["free_cores"]) - np.array(after["free_cores"])
        assert used.sum() == pytest.approx(len(before["placement"]) * before["cores_needed"])


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures_are_written_beside_the_json(tmp_path: Path) -> None:
    few = ("--topology", "ts100", "--queries", "1", "--seeds", "1", "--out", str(tmp_path))
    result = experiment("nes", *few, "--sources", "2", "--iterations", "3")
    experiment("scale", *few, "--operators", "1", "--sequence", "3")
    names = ("ts100-nes", "scale-hybrid", "scale-relaxation", "ts100-sequence")
    pictures = {f"{name}.{suffix}" for name in names for suffix in ("png", "svg")}
    assert {path.name for path in tmp_path.iterdir()} == pictures | {"nes.json", "scale.json"}
    assert json.loads((tmp_path / "nes.json").read_text()) == result


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """Ten nodes."""
    places = np.random.default_rng(3).uniform(0, 100, (10, 2))
    np.savez(tmp_path / "tiny.npz", rtt_ms=np.linalg.norm(places[:, None] - places, axis=-1))
    return str(tmp_path / "tiny.npz")


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_a_query_with_more_ends_than_there_are_nodes_shares_them(tiny: str) -> None:
    command = ("scale", "--data", tiny, "--queries", "1", "--operators", "15", "--sequence", "0")
    alone = [experiment(*command, "--seeds", str(seed))["rows"] for seed in (1, 2)]
    for *single, both in zip(*alone, experiment(*command, "--seeds", "1,2")["rows"], strict=True):
        assert [row["ratio_ci95"] for row in single] == [None, None]
        ratios = [row["ratio_mean"] for row in single]
        assert min(ratios) >= 1
        assert both["ratio_mean"] == pytest.approx(np.mean(ratios), abs=1e-3)
        assert both["ratio_ci95"] == pytest.approx(12.71 * abs(ratios[0] - ratios[1]) / 2, abs=0.02)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("sand", "--queries", "1", "--figure", "9"), "the network has 10 nodes, and the query 32 sources"),
        (("nes", "--sources", "10"), "tiny has 10 nodes"),
    ],
)
def test_where_nodes_are_too_few_that_is_said(tiny: str, options: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(sbon, ["experiment", *options, "--data", tiny])
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "command",
    [
        ("experiment", "scale", "--strategy", "hybird"),
        ("experiment", "scale", "--strategy", "auto"),
        ("experiment", "live", "--data", __file__, "--strategy", "hybird"),
        ("experiment", "live", "--data", __file__, "--query", "hybird"),
        ("bench", "usage", "--strategy", "hybird"),
        ("bench", "planning", "--queries", "hybird"),
    ],
)
def test_a_name_that_is_not_is_wrong_usage(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(sbon, command)
    assert result.exit_code == 2
    assert repr(command[-1]) in result.stderr
