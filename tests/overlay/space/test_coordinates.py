"""Coordinates: what is accepted, how they are moved, how far they end up from the truth, and what surrounds them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack
from numpy.typing import NDArray

from sbon_lab.experiments.coordinates.rtt_matrix import TRUTHS
from sbon_node.overlay.space import vivaldi
from sbon_node.overlay.space.coordinate import MAX_MS, Coordinate, checked, origin
from sbon_node.overlay.space.cost import cost_distances
from sbon_node.overlay.space.filters import LinkFilter, Percentile
from sbon_node.overlay.space.load import LoadDimension
from sbon_node.overlay.space.local import LocalCoordinate
from sbon_node.overlay.space.settings import SpaceSettings
from tests.measured import measured

NAN, INF = math.nan, math.inf


def wire(*vector: float, height: float = 0.0, error: float = 0.5, load: float = 0.0) -> Coordinate:
    return Coordinate(vector=vector, height=height, error=error, load=load)


@pytest.mark.parametrize(
    "claimed",
    [
        wire(NAN, 0, 0),
        wire(0, INF, 0),
        wire(0, 0, -INF),
        wire(MAX_MS * 1.01, 0, 0),
        wire(0, 0),
        wire(0, 0, 0, 0),
        wire(0, 0, 0, height=-1),
        wire(0, 0, 0, height=NAN),
        wire(0, 0, 0, error=-0.1),
        wire(0, 0, 0, error=INF),
        wire(0, 0, 0, load=NAN),
        wire(0, 0, 0, load=MAX_MS * 2),
    ],
)
def test_an_impossible_coordinate_is_refused(claimed: Coordinate) -> None:
    assert checked(claimed, 3) is None


def test_a_coordinate_survives_the_wire() -> None:
    coordinate = Coordinate(vector=(1.5, -2.0, 3.0), height=4.0, error=0.25, load=7.0)
    assert checked(msgpack.decode(msgpack.encode(coordinate), type=Coordinate), 3) == coordinate


def test_distance_is_euclidean_plus_both_heights_and_ignores_load() -> None:
    one, other = Coordinate(vector=(0, 0, 0), height=2, load=50), Coordinate(vector=(3, 4, 0), height=1, load=9)
    assert one.distance_ms(other) == pytest.approx(8)
    assert one.distance_ms(other) == other.distance_ms(one)


@pytest.mark.parametrize("count", [1, 2, 5, 10, 25])
@pytest.mark.parametrize("percentile", [0, 20, 50, 100])
def test_the_filter_is_the_percentile_of_the_last_samples(count: int, percentile: float) -> None:
    samples = [random.Random(count).uniform(10, 500) for _ in range(count)]
    link = LinkFilter(10, Percentile(percentile, adaptive=False))
    passed = [link.add(sample) for sample in samples]
    assert passed == pytest.approx([np.percentile(samples[max(0, i - 9) : i + 1], percentile) for i in range(count)])


DISTURBED: dict[str, tuple[Callable[[random.Random], float], float]] = {
    "nothing": (lambda rng: 1.0, 0.001),
    "queueing": (lambda rng: 1 + rng.expovariate(20), 0.013),
    "spikes": (lambda rng: (1 + rng.expovariate(20)) * (1 + rng.paretovariate(1.2) if rng.random() < 0.1 else 1), 0.018),
    "noise": (lambda rng: rng.gauss(1, 0.1), 0.012),
    "much noise": (lambda rng: rng.gauss(1, 0.2), 0.025),
}
"""Factor of a sample, and the largest mean error of the links' filters once they have settled. The low
percentile alone misses it by 7 and 15 % under noise, the median by 4 % under queueing."""


@pytest.mark.parametrize("disturbed, within", DISTURBED.values(), ids=DISTURBED)
def test_the_filter_of_refit_finds_the_truth_under_queueing_and_under_noise(
    disturbed: Callable[[random.Random], float], within: float
) -> None:
    rng = random.Random(1)
    node = engine()
    for turn in range(40):
        for peer in range(48):
            node.observe(f"p{peer}", 100.0 * disturbed(rng), None, float(turn))
    links = np.array(list(node.remembered_ms().values())) / 100
    assert np.median(links) == pytest.approx(1, abs=within + 0.003)


def test_vivaldi_has_the_papers_filter_and_either_can_have_the_other() -> None:
    rng = random.Random(1)
    samples = [rng.gauss(100, 10) for _ in range(1000)]
    passed = {}
    for algorithm, name in (("vivaldi", "auto"), ("refit", "percentile"), ("refit", "auto"), ("vivaldi", "adaptive")):
        node = engine(algorithm=algorithm, filter=name)
        for sample in samples:
            node.observe("peer", sample, None, 0.0)
        passed[algorithm, name] = node.rtt_ms("peer", 0.0)
    assert passed["vivaldi", "auto"] == passed["refit", "percentile"] == pytest.approx(np.percentile(samples[-10:], 20))
    assert passed["refit", "auto"] == passed["vivaldi", "adaptive"] != passed["vivaldi", "auto"]


def test_a_step_of_vivaldi_is_the_papers() -> None:
    local, remote = Coordinate(vector=(0, 0, 0), error=0.6), Coordinate(vector=(30, 40, 0), error=0.2)
    after = vivaldi.update(local, remote, 100.0, random.Random(1), error_gain=0.25, step_gain=0.25)
    weight = 0.6 / 0.8
    assert after.vector == pytest.approx((-0.6 * 0.25 * weight * 50, -0.8 * 0.25 * weight * 50, 0))
    assert after.error == pytest.approx(0.5 * 0.25 * weight + 0.6 * (1 - 0.25 * weight))


def test_two_nodes_at_one_point_push_apart() -> None:
    start = origin(3)
    after = vivaldi.update(start, start, 80.0, random.Random(1))
    assert math.hypot(*after.vector) == pytest.approx(0.25 * 0.5 * 80)


def errors_after(truth: NDArray[np.float64], rounds: NDArray[np.float64], steps: int, seed: int) -> NDArray[np.float64]:
    """Relative error of every pair after ``steps`` probes by each node of its 32 neighbours, in turn, each sample drawn from one
    of ``rounds`` [t, n, n] with queueing on top."""
    rng = random.Random(seed)
    n = len(truth)
    nodes = [LocalCoordinate(SpaceSettings(algorithm="vivaldi"), rng) for _ in range(n)]
    neighbours = [rng.sample([j for j in range(n) if j != i], min(32, n - 1)) for i in range(n)]
    for step in range(steps):
        for i, node in enumerate(nodes):
            j = neighbours[i][step % len(neighbours[i])]
            rtt = float(rounds[rng.randrange(len(rounds)), i, j]) * (1 + rng.expovariate(20))
            assert node.observe(str(j), rtt * (5 if rng.random() < 0.03 else 1), nodes[j].coordinate, float(step))
    where = np.array([node.coordinate.vector for node in nodes])
    predicted = np.linalg.norm(where[:, None] - where[None, :], axis=2)
    pairs = np.triu_indices(n, 1)
    errors: NDArray[np.float64] = np.abs(predicted - truth)[pairs] / truth[pairs]
    return errors[np.isfinite(errors)]


BOUNDS = {"space": (0.025, 0.04), "access": (0.04, 0.14), "continents": (0.03, 0.08), "detours": (0.10, 0.25)}
"""Median and 90th percentile of the relative error of all pairs. Over five seeds the worst of 60 nodes were .016/.023, .031/.115,
.018/.059 and .082/.218; without the percentile filter the best was .13/.48, and in two dimensions three of the four miss."""


@pytest.mark.one_part_per_commit("fits of coordinates", parts=6)
@pytest.mark.parametrize("truth", TRUTHS)
def test_vivaldi_finds_the_truth_as_far_as_its_space_can_tell_it(truth: str) -> None:
    """60 nodes after 1,600 probes each. At 400 probes some seeds are still folded (median 8 % in ``space``): it is slow."""
    matrix = TRUTHS[truth](60, np.random.default_rng(1))
    errors = errors_after(matrix, matrix[None], steps=1600, seed=1)
    median, p90 = BOUNDS[truth]
    assert np.median(errors) < median
    assert np.percentile(errors, 90) < p90


def test_vivaldi_with_the_filter_nears_its_published_error_on_planetlab() -> None:
    """All pairs of 490 nodes, 32 neighbours each. SBON's own has .089 / .420 once it has settled: at 1,500 probes this has
    .090 to .092 / .42, at the 450 that a test has time for .096 / .47; without the filter .24.
    """
    rounds = np.load(measured("planetlab490_dyn.npz"))["rtt_ms"].astype(np.float64)
    errors = errors_after(np.median(rounds, axis=0), rounds, steps=450, seed=5)
    assert np.median(errors) < 0.10


def engine(**knobs: object) -> LocalCoordinate:
    return LocalCoordinate(SpaceSettings(**knobs), random.Random(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("rtt_ms", [NAN, INF, -INF, -0.001, 10_000.1])
def test_samples_that_are_no_round_trip_time_are_refused(rtt_ms: float) -> None:
    node = engine()
    before = node.coordinate
    assert not node.observe("peer", rtt_ms, origin(3), 0.0)
    assert (node.coordinate, node.rtt_ms("peer", 0.0)) == (before, None)


def test_a_measurement_is_kept_without_a_coordinate_and_while_it_is_fresh() -> None:
    node = engine(fresh_s=60.0)
    assert node.observe("peer", 42.0, None, 10.0)
    assert node.rtt_ms("peer", 70.0) == 42.0
    assert node.rtt_ms("peer", 70.1) is None
    assert node.coordinate == origin(3)
    node.forget("peer")
    assert node.rtt_ms("peer", 10.0) is None


def test_links_are_bounded_and_the_stalest_goes() -> None:
    node = engine(max_links=16)
    for number in range(17):
        node.observe(f"p{number:02}", 10.0, None, 100.0 - number)
    assert node.rtt_ms("p15", 100.0) is None
    assert all(node.rtt_ms(f"p{number:02}", 100.0) == 10.0 for number in (*range(15), 16))


claims = st.builds(
    Coordinate,
    vector=st.lists(st.floats(), min_size=1, max_size=8).map(tuple) | st.tuples(*[st.floats(-MAX_MS, MAX_MS)] * 3),
    height=st.floats(),
    error=st.floats(),
    load=st.floats(),
) | st.builds(
    Coordinate,
    vector=st.tuples(*[st.sampled_from([0.0, 5e-324, -MAX_MS, MAX_MS, 1e-7])] * 3),
    height=st.sampled_from([0.0, MAX_MS]),
    error=st.sampled_from([0.0, 1e-300, 1.0, MAX_MS]),
)


@pytest.mark.one_part_per_commit("fits of coordinates", parts=6)
@pytest.mark.parametrize("algorithm", ["refit", "vivaldi"])
@settings(max_examples=150, deadline=None)
@given(samples=st.lists(st.tuples(st.floats() | st.floats(0, 10_000), claims), max_size=30))
def test_no_sequence_of_claims_leads_anywhere_others_would_refuse(
    algorithm: str, samples: list[tuple[float, Coordinate]]
) -> None:
    node = engine(algorithm=algorithm)
    for number, (rtt_ms, claim) in enumerate(samples):
        node.observe(f"p{number % 3}", rtt_ms, checked(claim, 3), float(number))
        assert checked(node.coordinate, 3) == node.coordinate
        assert node.coordinate.error <= vivaldi.MAX_ERROR


def test_load_is_linear_and_a_spike_hardly_moves_it() -> None:
    load = LoadDimension(weight_ms=50.0, smoothing_s=30.0)
    assert load.observe(0.2, 0.0) == pytest.approx(10)
    assert load.observe(5.0, 1.0) < 20
    assert load.observe(0.2, 2.0) < 20
    steady = [load.observe(0.8, 2.0 + second) for second in range(300)]
    assert steady[-1] == pytest.approx(40, rel=0.01)
    assert load.observe(5.0, 302.0) < 55, "nor does a spike after a while"
    assert load.observe(NAN, 303.0) < 55


def test_cost_distance_lets_load_lie_off_to_the_side() -> None:
    vectors, heights = np.array([(30, 40, 0), (30, 40, 0)]), np.array([2, 2])
    assert cost_distances((0, 0, 0), vectors, heights, np.array([120, 0])) == pytest.approx([132, 52])
