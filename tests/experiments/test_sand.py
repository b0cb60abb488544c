"""``sbon experiment sand`` on a small network: its rows, its dump recomputed, its pictures, and the queries' shape."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

from sbon_cli.main import sbon
from sbon_lab.experiments.harness.network import between
from sbon_lab.experiments.sand import figures
from sbon_lab.experiments.sand.workload import LIES, Shape, lie_of, tree

ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("experiments of today's size")
ONE_PART = importlib.util.find_spec("matplotlib") is not None
FIGURES = {"6-7": "6", "11-12": "12"}
"""By their rows, an option that asks for them."""


class Run(NamedTuple):
    """All figures of a run, with its files; ``repeated`` names the rows that are computed again."""

    rows: list[dict[str, Any]]
    folder: Path
    queries: int
    seeds: tuple[int, ...]
    repeated: str

    @property
    def command(self) -> tuple[str, ...]:
        return ("--queries", str(self.queries), "--seeds", ",".join(map(str, self.seeds)))


@contextmanager
def settings(size: str) -> Iterator[None]:
    """Keep two settings of each of Figures 8 to 12 if the size is small."""
    with pytest.MonkeyPatch.context() as patch:
        if size == "small":
            patch.setattr(figures, "ASDS", (0.1, 0.3))
            patch.setattr(figures, "BOUNDS", (1.2, 3.0))
            patch.setattr(figures, "SHAPES", (Shape(2, (3,)), Shape(3, (2,))))
            patch.setattr(figures, "SELECTIVITIES", (0.5, 1.0))
        yield


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("matrix") / "plane.npz"
    np.savez(path, rtt_ms=2 * between(rng.uniform(0, 100, (70, 2))))
    return path


@pytest.fixture(scope="module", params=["small", pytest.param("large", marks=ONLY_IN_TEST_ALL)])
def run(request: pytest.FixtureRequest, matrix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("sand")
    sizes: tuple[Any, ...] = (1, (1,), "11-12") if request.param == "small" else (2, (1, 2), "6-7")
    made = Run([], folder, *sizes)
    out = ("--out", str(folder / "out")) if ONE_PART else ()
    with settings(request.param):
        made.rows.extend(experiment("--data", str(matrix), *made.command, "--dump", str(folder / "dump"), *out))
        yield made


def experiment(*options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(sbon, ["experiment", "sand", *options, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert found["name"] == "sand"
    rows: list[dict[str, Any]] = found["rows"]
    return rows


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_a_seed_repeats_its_rows(run: Run, matrix: Path) -> None:
    again = experiment("--data", str(matrix), *run.command, "--figure", FIGURES[run.repeated])
    assert [{**row, "cpu_ms": 0} for row in again] == [{**row, "cpu_ms": 0} for row in run.rows if row["figure"] == run.repeated]


def test_bounds_are_kept_and_the_dump_says_the_same(run: Run) -> None:
    dump = run.folder / "dump"
    every = [json.loads(line) for line in (dump / "sand.jsonl").read_text().splitlines()]
    assert len(every) == sum(row["queries"] for row in run.rows)
    lines, rows = [[one for one in among if one["figure"] == "6-7"] for among in (every, run.rows)]
    assert len(lines) == sum(row["queries"] for row in rows) == run.queries * len(run.seeds) * (3 * (4 * 2 + 1) + 4 * 2)
    sums: dict[tuple[Any, ...], list[float]] = {}
    for line in lines:
        latency_ms = np.load(dump / line["network"])["latency_ms"]
        at = {vertex: int(node[1:]) for vertex, node in {**line["pinned"], **line["placement"]}.items()}
        reached, usage, whole = dict.fromkeys(line["pinned"], 0.0), 0.0, 0.0
        for edge in line["edges"]:
            ms = latency_ms[at[edge["source"]], at[edge["target"]]]
            usage += edge["rate_bytes_s"] * ms / 1000
            if edge["source"] in line["pinned"]:
                whole += edge["rate_bytes_s"] * latency_ms[at[edge["source"]], at["consumer"]] / 1000
            reached[edge["target"]] = max(reached.get(edge["target"], 0.0), reached[edge["source"]] + ms)
        assert (line["usage"], line["baseline_usage"]) == (pytest.approx(usage), pytest.approx(whole))
        assert line["delay_ms"] == pytest.approx(reached["consumer"])
        direct_ms = max(latency_ms[at[vertex], at["consumer"]] for vertex in line["pinned"])
        if line["strategy"] == "optimal":
            assert (line["bound"], line["max_delay_ms"], line["optimal_usage"]) == (None, None, line["usage"])
        else:
            assert line["max_delay_ms"] == pytest.approx(line["bound"] * direct_ms)
            assert reached["consumer"] <= line["max_delay_ms"] + 1e-6
        if line["latencies"] == "true":
            assert usage >= line["optimal_usage"] - 1e-6
        key = (line["latencies"], line["sources"], line["bound"], line["strategy"], line["seed"])
        sums.setdefault(key, [0.0, 0.0])
        sums[key][0] += usage
        sums[key][1] += whole
    for row in rows:
        assert (row["bound_kept"], row["refused"]) == (row["queries"], 0)
        ratios = [sums[row["latencies"], row["sources"], row["bound"], row["strategy"], seed] for seed in run.seeds]
        assert row["bandwidth_ratio"] == pytest.approx(np.mean([usage / whole for usage, whole in ratios]), abs=1e-4)
        assert row["at_proxy_pct"] + row["at_sources_pct"] + row["in_network_pct"] == pytest.approx(100, abs=0.2)
    found = {
        (row["sources"], row["bound"], row["strategy"]): row["bandwidth_ratio"] for row in rows if row["latencies"] == "true"
    }
    for sources in LIES:
        for bound in (1.2, 3):
            assert found[sources, None, "optimal"] <= found[sources, bound, "in-network+"] < found[sources, bound, "edge"] < 1
    assert found["cluster", 3, "in-network+"] < found["cluster", 1.2, "in-network+"]


@pytest.mark.parametrize("sources", sorted(LIES))
def test_sources_lie_as_the_paper_has_them(sources: str) -> None:
    """In a plane the middle of a disk is two thirds of its radius from all, and these 0.9 of it from each other."""
    rng = np.random.default_rng(7)
    latency_ms = between(rng.uniform(0, 100, (300, 2)))
    wanted, found = LIES[sources], []
    for _ in range(10):
        problem = tree(Shape(2, (3, 4)), wanted, 1.0, latency_ms, rng)
        assert len(set(problem.pinned.values())) == len(problem.pinned) in (9, 17)
        assert len(problem.operators) == len(problem.pinned) - 2
        found.append(lie_of(problem, latency_ms))
    apd, asd = np.array(found).mean(axis=0)
    assert apd / asd == pytest.approx(0.67 if sources == "star" else wanted.apd / wanted.asd, rel=0.15)
    assert apd == pytest.approx(wanted.apd, rel=0.35)


@pytest.mark.skipif(not ONE_PART, reason="matplotlib is not installed")
def test_every_figure_is_drawn(run: Run) -> None:
    pictures = {f"plane-figure{number}.{suffix}" for number in range(6, 13) for suffix in ("png", "svg")}
    assert {path.name for path in (run.folder / "out").iterdir()} == pictures | {"sand.json"}
    assert {row["figure"] for row in run.rows} == {"6-7", "8", "9-10", "11-12"}
    assert json.loads((run.folder / "out" / "sand.json").read_text())["rows"] == run.rows
