"""``sbon experiment coordinates`` on small matrices of every shape it must take; and Serf's algorithm, for what it is."""

from __future__ import annotations

import importlib.util
import json
import math
import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from sbon_cli.main import sbon
from sbon_lab.experiments.coordinates.contenders import CONTENDERS, ORIGIN, SerfClient, distance_s
from sbon_lab.experiments.coordinates.experiment import run, simulate
from sbon_lab.experiments.coordinates.rtt_matrix import (
    MADE,
    TRUTHS,
    Matrix,
    RttMatrix,
    Weather,
    made_matrix,
    read_matrix,
    timeouts_in,
)
from sbon_lab.experiments.harness.network import measured
from sbon_protocol.errors import SbonError

ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("experiments of today's size")
COLUMNS = (
    "algorithm data median p90 median_unmeasured p90_unmeasured movement_ms samples_to_settle join5 join10 join20 recall10 "
    "recall10_probed liars"
)


def saved(path: Path, rtt_ms: Matrix) -> Path:
    np.savez(path, rtt_ms=rtt_ms.astype(np.float32))
    return path


def odd(count: int) -> Matrix:
    """Three rounds that differ, longer one way than the other, a tenth of the pairs missing, nothing known of one node."""
    rng = np.random.default_rng(1)
    rounds = TRUTHS["access"](count, rng)[None] * np.exp(rng.normal(0, 0.05, (3, count, count)))
    rounds[:, rng.random((count, count)) < 0.1] = np.nan
    rounds[:, 5] = rounds[:, :, 5] = np.nan
    return np.asarray(rounds)


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_every_column_is_printed_and_repeats_with_its_seed(tmp_path: Path) -> None:
    files = [saved(tmp_path / "even.npz", TRUTHS["access"](60, np.random.default_rng(2))), saved(tmp_path / "odd.npz", odd(16))]
    first, again = (
        run([read_matrix(path) for path in some], ("refit", "vivaldi", "serf", "floor"), seed=3, probes=96)[0]
        for some in (files, files[1:])
    )
    assert [row for row in first["rows"] if row["data"] == "odd"] == again["rows"]
    rows = {(row["data"], row["algorithm"]): row for row in first["rows"]}
    assert list(rows) == [(data, name) for data in ("even", "odd") for name in ("refit", "vivaldi", "serf", "floor")]
    for (data, name), row in rows.items():
        assert " ".join(row) == COLUMNS
        told = {key: value for key, value in row.items() if value is not None}
        assert all(math.isfinite(value) for key, value in told.items() if key not in ("algorithm", "data"))
        if name != "floor":
            assert set(row) - set(told) == (set() if data == "even" else {"median_unmeasured", "p90_unmeasured"})
    even = {name: rows["even", name] for name in ("refit", "serf")}
    for column in ("median", "p90", "movement_ms", "join20", "liars"):
        assert even["refit"][column] < even["serf"][column], column
    assert rows["even", "floor"]["median"] < 0.02


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize("nodes, probes", [(60, 97), pytest.param(60, 144, marks=ONLY_IN_TEST_ALL)])
def test_each_contender_is_another(nodes: int, probes: int) -> None:
    """Two that share their neighbours by mistake print the same figures to the digit."""
    rows = run([made_matrix(f"access:{nodes}", 2)], tuple(CONTENDERS), probes=probes)[0]["rows"]
    figures = [tuple(value for key, value in row.items() if key != "algorithm") for row in rows]
    assert len(set(figures)) == len(CONTENDERS)


@cache
def share_of_the_nearest(name: str, kind: str) -> float:
    """Return how many of the ten nearest nodes are neighbours of a node after 480 probes, on average."""
    matrix = made_matrix(f"{kind}:80", 2)
    space = simulate(CONTENDERS[name](80, 1), matrix, 1, 480).space
    nearest = [set(np.argsort(times)[:10].tolist()) for times in matrix.truth]
    return float(np.mean([len(nearest[node] & set(space.neighbours(node))) / 10 for node in range(80)]))


@pytest.mark.one_part_per_commit("kinds of matrices", parts=8)
@pytest.mark.parametrize("kind", ["access", "sparse"])
@pytest.mark.parametrize("name", ["refit", "serf"])
def test_nodes_with_near_neighbours_measure_the_near_ones(name: str, kind: str) -> None:
    assert share_of_the_nearest(name, kind) > share_of_the_nearest("serf-32", kind) + 0.25


def test_serf_as_it_runs_probes_each_member_once_before_any_again() -> None:
    space = CONTENDERS["serf-all"](9, 1)
    space.choose(0, {peer: space.place(peer) for peer in range(1, 9)})
    rounds = [[space.next(0) for _ in range(8)] for _ in range(3)]
    assert all(sorted(probed) == list(range(1, 9)) for probed in rounds)  # type: ignore[type-var]
    assert len({tuple(probed) for probed in rounds}) == 3


@pytest.mark.parametrize(
    "content, words",
    [
        ({"rtt_ms": np.ones((3, 4))}, "neither [n, n] nor [t, n, n]"),
        ({"rtt_ms": np.full((9, 9), np.nan)}, "0 nodes with times"),
        ({"rtt_ms": np.ones((0, 0))}, "0 nodes with times"),
        ({"rtt_ms": np.full((9, 9), 1e300)}, "81 of 81 times are above 60,000 ms, the longest 1e+300 ms"),
        ({"rtt_ms": np.full((9, 9), 1j)}, "rtt_ms holds complex128, not milliseconds"),
        ({"rtt_ms": np.full((9, 9), "1")}, "rtt_ms holds str"),
        ({"times": np.ones((9, 9))}, "it has no array rtt_ms; its arrays: times"),
    ],
)
def test_a_file_without_a_matrix_is_refused_by_name(tmp_path: Path, content: dict[str, Matrix], words: str) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, **content)  # type: ignore[arg-type]
    with pytest.raises(SbonError) as refused:
        read_matrix(path)
    assert (refused.value.code, refused.value.where) == ("bad-matrix", str(path))
    assert words in refused.value.message


@pytest.mark.parametrize(
    "content, words", [(b"0,1\n1,0\n", "it is no .npz file"), (b"PK\x03\x04 cut off", "it is no .npz file"), (None, "Bad CRC-32")]
)
def test_a_damaged_archive_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, rtt_ms=TRUTHS["access"](9, np.random.default_rng(1)))
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + bytes(8) + whole[208:] if content is None else content)
    with pytest.raises(SbonError, match=words) as refused:
        read_matrix(path)
    assert (refused.value.code, refused.value.where) == ("bad-matrix", str(path))


def test_a_few_timeouts_are_missing_and_counted(tmp_path: Path) -> None:
    times = TRUTHS["access"](9, np.random.default_rng(1))
    times[2, 5] = times[5, 2] = 61_000.0
    times[7, 8] = 3.6e6
    np.savez(tmp_path / "slow.npz", rtt_ms=times)
    truth = read_matrix(tmp_path / "slow.npz").truth
    assert np.isnan(truth[[2, 5, 7], [5, 2, 8]]).all()
    assert np.isnan(truth).sum() == 9 + 3
    assert timeouts_in(tmp_path / "slow.npz") == 3
    network = measured(tmp_path / "slow.npz")
    assert network.latency_ms.max() < 30_000
    times[:, :2] = 1e5
    np.savez(tmp_path / "slow.npz", rtt_ms=times)
    with pytest.raises(SbonError, match="of 81 times are above 60,000 ms") as refused:
        read_matrix(tmp_path / "slow.npz")
    assert refused.value.hint == "rtt_ms is in milliseconds"


def test_experiments_say_how_many_times_are_timeouts(tmp_path: Path) -> None:
    times = TRUTHS["access"](9, np.random.default_rng(1))
    times[2, 5] = 61_000.0
    np.savez(tmp_path / "slow.npz", rtt_ms=times)
    for name, *options in (
        ("coordinates", "--algorithm", "refit", "--probes", "24"),
        ("sbon-table1", "--queries", "1", "--seeds", "1"),
    ):
        asked = ["experiment", name, "--data", str(tmp_path / "slow.npz"), "--json", *options]
        result = CliRunner().invoke(sbon, asked)
        assert result.exit_code == 0, result.stderr
        assert f"{tmp_path}/slow.npz: 1 time above 60 s counted as missing\n" in result.stderr


def test_a_triangle_and_nodes_measured_one_way_only_are_whole_matrices(tmp_path: Path) -> None:
    whole = TRUTHS["access"](9, np.random.default_rng(1))
    whole = (whole + whole.T) / 2
    silent = whole.copy()
    silent[4] = np.nan
    unasked = whole.copy()
    unasked[:, 4] = 0.0
    for times in (np.triu(whole), np.tril(whole), silent, unasked):
        np.savez(tmp_path / "half.npz", rtt_ms=times)
        read = read_matrix(tmp_path / "half.npz").truth
        away = ~np.eye(9, dtype=bool)
        assert np.array_equal(read[away], whole[away])
    np.savez(tmp_path / "half.npz", rtt_ms=silent)
    result, _ = run([read_matrix(tmp_path / "half.npz")], ("refit",), seed=1, probes=24)
    assert math.isfinite(result["rows"][0]["median"])


def test_the_truth_is_the_median_round_and_samples_are_rarely_below_it() -> None:
    assert np.isnan(RttMatrix("odd", odd(16)).truth).any()
    flat = np.where(np.eye(5) > 0, np.nan, 100.0)
    matrix = RttMatrix("made", flat * np.array([1, 1.1, 1.5])[:, None, None])
    assert matrix.truth[0, 1] == pytest.approx(110)
    pair = np.zeros(1000, dtype=int)
    samples = matrix.sample(pair, pair + 1, np.random.default_rng(1))
    assert samples.min() >= 100
    assert 0.01 < (samples > 450).mean() < 0.06


def test_noise_goes_both_ways_and_queueing_can_be_left_out() -> None:
    flat, pair = np.where(np.eye(5) > 0, np.nan, 100.0)[None], np.zeros(4000, dtype=int)
    quiet = RttMatrix("made", flat, Weather(0.1, queueing=False)).sample(pair, pair + 1, np.random.default_rng(1))
    assert quiet.mean() == pytest.approx(100, abs=1)
    assert quiet.std() == pytest.approx(10, abs=1)
    both = RttMatrix("made", flat, Weather(0.1)).sample(pair, pair + 1, np.random.default_rng(1))
    assert both.min() < 90
    assert (both > 350).any()


@pytest.mark.parametrize("kind", MADE)
def test_matrices_are_made_by_kind_and_size(kind: str) -> None:
    made, again = (made_matrix(f"{kind}:20", 3) for _ in range(2))
    assert (made.name, made.nodes) == (f"{kind}20", 20)
    assert np.array_equal(made.truth, again.truth, equal_nan=True)
    assert np.nanmin(made.truth) > 0
    assert np.isnan(made.truth).sum() > 20 if kind == "sparse" else np.isnan(made.truth).sum() == 20


@pytest.mark.parametrize("text", ["access", "access:3", "access:x", "nothing:20", "access:1000000"])
def test_an_unknown_kind_is_refused_with_the_known_kinds(text: str) -> None:
    with pytest.raises(SbonError) as refused:
        made_matrix(text, 1)
    assert (refused.value.code, refused.value.where) == ("bad-matrix", "--made")
    assert "inflated" in (refused.value.hint or "")


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize("nodes", [4, 8, pytest.param(20, marks=ONLY_IN_TEST_ALL)])
def test_tiny_networks_are_no_worse_than_serfs_in_noise(nodes: int) -> None:
    matrix = made_matrix(f"access:{nodes}", 2, Weather(0.1))
    refit, serf = (row["median"] for row in run([matrix], ("refit", "serf"), probes=240)[0]["rows"])
    assert refit < serf


def test_a_command_line_names_an_algorithm_that_there_is_not(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.npz", TRUTHS["space"](8, np.random.default_rng(1)))
    result = CliRunner().invoke(sbon, ["experiment", "coordinates", "--data", str(path), "--algorithm", "serv"])
    assert result.exit_code == 2
    assert "there is no algorithm 'serv'" in result.stderr


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures_are_written_beside_the_json(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.npz", TRUTHS["space"](12, np.random.default_rng(1)))
    out = tmp_path / "out"
    command = [
        "experiment",
        "coordinates",
        "--data",
        str(path),
        "--algorithm",
        "refit",
        "--probes",
        "24",
        "--out",
        str(out),
        "--json",
    ]
    result = CliRunner().invoke(sbon, command)
    assert result.exit_code == 0, result.output
    kinds = ("errors", "map", "samples", "settling")
    assert sorted(p.name for p in out.iterdir()) == sorted(
        ["coordinates.json", *(f"m-{k}.{s}" for k in kinds for s in ("png", "svg"))]
    )
    assert json.loads((out / "coordinates.json").read_text()) == json.loads(result.stdout)
    assert all(p.stat().st_size > 1000 for p in out.iterdir() if p.suffix != ".json")


def test_serf_pulls_two_nodes_to_their_distance() -> None:
    one, other = SerfClient(random.Random(1)), SerfClient(random.Random(2))
    assert distance_s(one.coordinate, ORIGIN) < 1e-3
    for _ in range(60):
        one.update("other", other.coordinate, 0.08)
        other.update("one", one.coordinate, 0.08)
    assert distance_s(one.coordinate, other.coordinate) == pytest.approx(0.08, rel=0.05)
    assert one.coordinate.error < 0.1
