"""``sbon experiment sbon-table1`` and ``penalty`` on small networks: rows as promised, and dumps another program can check."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sbon_cli.main import sbon
from sbon_lab.experiments.harness.network import between

COLUMNS = (
    "strategy variant coordinates topology operators hosts penalty_mean_pct penalty_ci95_pct penalty_p90_pct delay_pct "
    "probes_mean cpu_ms queries"
)


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Forty nodes in a plane with access links, and a tenth of noise that no coordinate tells."""
    rng = np.random.default_rng(5)
    access = rng.uniform(1, 10, 40)
    rtt_ms = (2 * between(rng.uniform(0, 100, (40, 2))) + access[:, None] + access) * np.exp(rng.normal(0, 0.1, (40, 40)))
    path = tmp_path / "plane.npz"
    np.savez(path, rtt_ms=(rtt_ms + rtt_ms.T) / 2)
    return path


def experiment(*options: str) -> dict[str, Any]:
    result = CliRunner().invoke(sbon, ["experiment", *options, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def checked(path: Path) -> list[dict[str, Any]]:
    """Every line's usage is that of its placement by its latencies, and one operator's optimum that of trying all hosts."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        whole = np.load(path.parent / line["network"])["latency_ms"]
        at = {**line["pinned"], **line["placement"]}
        row = {node: i for i, node in enumerate(line["nodes"])}
        usage = 0.0
        for edge in line["edges"]:
            a, b = at[edge["source"]], at[edge["target"]]
            assert line["latency_ms"][row[a]][row[b]] == pytest.approx(whole[int(a[1:]), int(b[1:])])
            usage += edge["rate_bytes_s"] * line["latency_ms"][row[a]][row[b]] / 1000
        assert usage == pytest.approx(line["usage"])
        assert line["usage"] >= line["optimal_usage"] - 1e-9 or line["strategy"] == "random"
        assert set(line["placement"].values()) <= set(line["hosts_allowed"])
        if len(line["operators"]) == 1 and "free_cores" not in line:
            hosts = [int(node[1:]) for node in line["hosts_allowed"]]
            costs = np.zeros(len(hosts))
            for edge in line["edges"]:
                pinned = edge["source"] if edge["source"] in line["pinned"] else edge["target"]
                costs += edge["rate_bytes_s"] * whole[int(line["pinned"][pinned][1:]), hosts] / 1000
            assert line["optimal_usage"] == pytest.approx(costs.min())
    return lines


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_penalty_has_a_row_for_each_strategy_variant_and_size_and_a_seed_repeats_it(matrix: Path, tmp_path: Path) -> None:
    command = ("penalty", "--data", str(matrix), "--queries", "3", "--seeds", "1,2", "--operators", "1", "--operators", "3")
    found = experiment(*command, "--dump", str(tmp_path / "dump"))
    again = experiment(*command[:-2])
    assert [" ".join(row) for row in found["rows"]] == [COLUMNS] * len(found["rows"])
    stripped = [[{**row, "cpu_ms": 0} for row in one["rows"] if row["operators"] == 1] for one in (found, again)]
    assert stripped[0] == stripped[1]
    rows = {(row["operators"], row["variant"], row["strategy"], row["coordinates"]): row for row in found["rows"]}
    every = ("hybrid", "relaxation", "producer", "consumer", "random")
    for size, space in itertools.product((1, 3), ("3d+h", "5d+h")):
        assert {key[2] for key in rows if key[:2] == (size, "full")} == set(every)
        assert {key[2] for key in rows if key[:2] == (size, "noise10")} == {"hybrid"}
        hybrid, blind = (rows[size, variant, "hybrid", space] for variant in ("full", "no-pings"))
        assert 0 <= hybrid["penalty_mean_pct"] < blind["penalty_mean_pct"]
        assert hybrid["penalty_mean_pct"] < min(rows[size, "full", other, space]["penalty_mean_pct"] for other in every[1:])
        assert hybrid["probes_mean"] <= 101 * size
        assert rows[size, "capacities", "hybrid", space]["penalty_mean_pct"] >= 0
    lines = checked(tmp_path / "dump" / "penalty.jsonl")
    assert len(lines) == sum(row["queries"] for row in found["rows"])
    full = [line for line in lines if "free_cores" in line]
    assert full
    for line in full:
        free = dict(zip(line["hosts_allowed"], line["free_cores"], strict=True))
        hosts = list(line["placement"].values())
        assert all(hosts.count(node) * line["cores_needed"] <= free[node] for node in hosts)


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_table_1_stands_beside_the_papers(tmp_path: Path) -> None:
    command = ("sbon-table1", "--topology", "geometric", "--queries", "6", "--seeds", "3", "--dump", str(tmp_path / "dump"))
    rows = {row["strategy"]: row for row in experiment(*command)["rows"]}
    assert rows["relaxation"]["paper_usage_penalty_pct"] == 15
    assert rows["hybrid"]["paper_usage_penalty_pct"] is None
    assert rows["optimal"]["usage_penalty_pct"] == rows["consumer"]["delay_penalty_pct"] == 0
    assert rows["ip-multicast"]["delay_penalty_pct"] == pytest.approx(0, abs=0.01)
    usages = [rows[name]["usage_penalty_pct"] for name in ("optimal", "hybrid", "relaxation", "random")]
    assert usages == sorted(usages)
    assert rows["hybrid"]["usage_ci95_pct"] is None
    assert len(checked(tmp_path / "dump" / "sbon-table1.jsonl")) == 6 * 7


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures_are_written_beside_the_json(matrix: Path, tmp_path: Path) -> None:
    few = ("--data", str(matrix), "--queries", "2", "--seeds", "1-2", "--out", str(tmp_path / "out"))
    result = experiment("sbon-table1", *few)
    experiment("penalty", *few, "--operators", "1", "--variant", "full")
    pictures = {f"plane-{kind}.{suffix}" for kind in ("figure8", "figure9", "40") for suffix in ("png", "svg")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == pictures | {"sbon-table1.json", "penalty.json"}
    assert json.loads((tmp_path / "out" / "sbon-table1.json").read_text()) == result
    assert "ip-multicast" not in {row["strategy"] for row in result["rows"]}, "nobody knows the routes"


@pytest.mark.parametrize(
    "options, words",
    [
        (("sbon-table1", "--topology", "ring"), "there is no topology 'ring'"),
        (("penalty", "--seeds", "1,x"), "is no list of at most 1,000 seeds"),
        (("penalty", "--seeds", "1-1000000000000"), "is no list of at most 1,000 seeds"),
        (("penalty", "--out", "/dev/null/below"), "/dev/null/below cannot be made: Not a directory"),
        (("penalty", "--dump", "/dev/null"), "/dev/null cannot be made: File exists"),
        (("nes", "--load", "nan"), "'nan' is not a number"),
        (("penalty", "--variant", "fool"), "'fool' is none of full"),
    ],
)
def test_unknown_names_and_folders_are_named(options: tuple[str, ...], words: str) -> None:
    result = CliRunner().invoke(sbon, ["experiment", *options])
    assert result.exit_code == 2
    assert words in result.stderr


def test_load_in_the_cost_keeps_operators_off_busy_nodes(matrix: Path) -> None:
    found = experiment("load", "--data", str(matrix), "--queries", "20", "--seeds", "1")
    rows = {(row["strategy"], row["cost"]): row for row in found["rows"]}
    for strategy in ("hybrid", "relaxation"):
        with_load, without = (rows[strategy, cost] for cost in ("latency and load", "latency"))
        assert with_load["queries"] == without["queries"] == 20
        assert with_load["batch_ms_mean"] < without["batch_ms_mean"]
        assert with_load["at_busy_pct"] < without["at_busy_pct"]
        assert with_load["usage_mean"] > without["usage_mean"]
