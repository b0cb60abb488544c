"""``sbon experiment opb-table1`` on a small network: rows as promised, and a dump another program can check."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sbon_cli.main import sbon
from sbon_lab.experiments.harness.network import between
from sbon_lab.experiments.opb import table1
from sbon_lab.experiments.opb.workload import CAPACITIES, LEAST, MOST, application, capacities

CONTENDERS = {"opb", "relaxation", "min-delay", "random", "hybrid"}


@pytest.fixture(autouse=True)
def few_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep two settings of each kind, so that the tests are quick."""
    monkeypatch.setattr(table1, "F_TP", (1, 10))
    monkeypatch.setattr(table1, "F_D", (1.25, 10.0))
    monkeypatch.setattr(table1, "CAPACITIES", {kind: CAPACITIES[kind] for kind in ("uniform", "zipf")})


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Fifty nodes in a plane with access links, and a tenth of noise that no coordinate tells."""
    rng = np.random.default_rng(5)
    access = rng.uniform(1, 10, 50)
    rtt_ms = (2 * between(rng.uniform(0, 100, (50, 2))) + access[:, None] + access) * np.exp(rng.normal(0, 0.1, (50, 50)))
    path = tmp_path / "plane.npz"
    np.savez(path, rtt_ms=(rtt_ms + rtt_ms.T) / 2)
    return path


def experiment(*options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(sbon, ["experiment", "opb-table1", *options, "--json"])
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return rows


def kept(line: dict[str, Any]) -> bool:
    """Whether every host has room, keeps up, and the longest way keeps to the bound, by nothing but the line itself."""
    at, row = {**line["pinned"], **line["placement"]}, {node: i for i, node in enumerate(line["nodes"])}
    spare = {}
    for node in set(line["placement"].values()):
        needs = np.sum([line["needs"][name] for name, host in line["placement"].items() if host == node], axis=0)
        if (needs > np.array(line["free"][node]) + 1e-9).any():
            return False
        spare[node] = line["free"][node][0] - needs[0]
    reached = dict.fromkeys(line["pinned"], 0.0)
    for vertex in [*line["operators"], "consumer"]:
        ways = [
            reached[e["source"]] + line["latency_ms"][row[at[e["source"]]]][row[at[vertex]]]
            for e in line["edges"]
            if e["target"] == vertex
        ]
        reached[vertex] = max(ways) + (line["row_core_ms"][vertex] / spare[at[vertex]] if vertex in line["row_core_ms"] else 0.0)
    assert reached["consumer"] == pytest.approx(line["delay_ms"])
    return line["max_delay_ms"] is None or bool(reached["consumer"] <= line["max_delay_ms"] + 1e-6)


def test_the_application_is_the_papers() -> None:
    for seed in range(20):
        made = application(50, np.random.default_rng(seed))
        readers, inputs = Counter(s for s, _ in made.links), Counter(t for _, t in made.links)
        assert len(made.operators) == 7
        assert len(set(made.pinned.values())) == 3
        assert all(1 <= readers[vertex] <= 3 for vertex in ("s0", "s1", *made.operators))
        assert all(inputs[name] >= 1 for name in made.operators)
        assert 2 <= len(made.more) <= 5
        plain, doubled = made.problem(1.0), made.problem(2.0)
        assert {edge.rate_bytes_s for edge in plain.edges if edge.source[0] == "s"} == {50.0}
        rates = {edge.source: edge.rate_bytes_s for edge in doubled.edges}
        for operator in doubled.operators:
            read = sum(edge.rate_bytes_s for edge in doubled.edges if edge.target == operator.id)
            assert rates[operator.id] == pytest.approx(read * (2.0 if operator.id in made.more else 0.5))
            assert operator.load == pytest.approx(operator.needs.cores) == pytest.approx(read / 10 * operator.row_core_ms / 1000)


def test_resources_lie_in_the_papers_range() -> None:
    for kind in CAPACITIES:
        drawn = capacities(kind, 2000, np.random.default_rng(1))
        assert LEAST <= (drawn[:, 0] * 1000).min() <= (drawn[:, 0] * 1000).max() <= MOST
        assert LEAST <= drawn[:, 1].min() <= drawn[:, 1].max() <= MOST
        assert 10e3 <= drawn[:, 2].min() <= drawn[:, 2].max() <= 10e6
    medians = {kind: float(np.median(capacities(kind, 2000, np.random.default_rng(1))[:, 0])) for kind in CAPACITIES}
    assert max(medians["zipf"], medians["exponential"]) < medians["uniform"] < 12


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_success_is_what_the_dump_says_and_a_seed_repeats_it(matrix: Path, tmp_path: Path) -> None:
    command = ("--data", str(matrix), "--queries", "1", "--seeds", "1,2", "--part", "delay")
    rows = experiment(*command, "--dump", str(tmp_path))
    again = experiment("--data", str(matrix), "--queries", "1", "--seeds", "1,2", "--part", "delay")
    assert [{**row, "cpu_ms": 0} for row in rows] == [{**row, "cpu_ms": 0} for row in again]
    lines = [json.loads(line) for line in (tmp_path / "opb-table1.jsonl").read_text().splitlines()]
    for line in lines:
        if line["placement"]:
            assert kept(line) == (line["failed"] == "")
        else:
            assert line["failed"] in ("no-capacity", "delay-bound")
    for row in rows:
        if row["strategy"] in CONTENDERS:
            same = [x for x in lines if all(x[field] == row[field] for field in ("strategy", "latencies", "f_tp", "f_d"))]
            assert len(same) == row["queries"] == 2
            assert row["success_pct"] == 50 * sum(line["failed"] == "" for line in same)
        if row["strategy"] == "opb" and row["discoveries_max"] is not None:
            assert row["discoveries_max"] <= 5
    loose = {row["strategy"]: row for row in rows if (row["f_d"], row["latencies"]) == (10.0, "pinged")}
    assert loose["opb"]["success_pct"] == 100


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_usage_is_compared_with_a_local_optimum_and_the_exact_one(matrix: Path) -> None:
    rows = experiment("--data", str(matrix), "--queries", "2", "--seeds", "1", "--part", "usage")
    assert {(row["latencies"], row["capacities"]) for row in rows} == {
        (known, kind) for known in ("coordinates", "pinged", "measured") for kind in ("uniform", "zipf")
    }
    for row in rows:
        if row["ratio_median"] is not None:
            assert row["ratio_median"] >= 1 - 1e-9
        if row["optimum_ratio_median"] is not None:
            assert row["optimum_ratio_median"] >= 1 - 1e-6
    best = {row["strategy"]: row for row in rows if (row["latencies"], row["capacities"]) == ("measured", "uniform")}
    assert best["best-response"]["ratio_median"] == 1
    assert best["opb"]["ratio_median"] < best["random"]["ratio_median"]
    assert best["opb"]["usage_bytes"] < best["random"]["usage_bytes"]


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_table_1_stands_beside_the_papers_and_is_drawn(matrix: Path, tmp_path: Path) -> None:
    rows = experiment("--data", str(matrix), "--queries", "1", "--seeds", "2", "--part", "table1", "--out", str(tmp_path / "out"))
    paper = {(row["strategy"], row["f_tp"]): (row["paper_usage"], row["paper_delay"]) for row in rows}
    assert paper["opb", 1] == (3.95, 21.06)
    assert paper["relaxation", 10] == (252.1, 41.94)
    assert paper["hybrid", 1] == (None, None)
    names = {f"plane-opb-figure{number}.{suffix}" for number in (3, 5) for suffix in ("png", "svg")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names | {"opb-table1.json"}


def test_a_part_there_is_not_is_named() -> None:
    result = CliRunner().invoke(sbon, ["experiment", "opb-table1", "--part", "speed"])
    assert result.exit_code == 2
    assert "'speed' is none of table1" in result.stderr
