"""Accuracy of coordinates for round-trip times (``sbon experiment coordinates``): the daemon's code on measured matrices.

Every node probes its neighbours in turn, all at the same pace. A sample comes from any round of the matrix, with added
queueing (see ``rtt_matrix``). The results:

- the relative error |estimate - truth| / truth of all pairs, and of pairs that are not each other's neighbours;
- the movement of a coordinate with a probe, vector and height together;
- the number of probes after which the median error stays within a tenth of its last value;
- the error of fresh nodes that join, to all others;
- the recall of the ten nearest: by coordinates alone, and by the least of three pings of 30 candidates beside earlier
measurements;
- the median error between honest nodes if 15 % claim, without error, a fixed random coordinate.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbon_lab.experiments.coordinates.contenders import CONTENDERS, Floats, Space, distances_ms
from sbon_lab.experiments.coordinates.pictures import PICTURES, Curve, Pictured
from sbon_lab.experiments.coordinates.rtt_matrix import RttMatrix
from sbon_lab.experiments.harness.experiment import Experiment, Notify, ignore
from sbon_node.overlay.space import refit
from sbon_protocol.errors import SbonError

PROBES = 720
"""Probes of each node: fifteen turns of the 48 neighbours."""
CHECK_EVERY = 24
CHOOSE_EVERY = 48
CANDIDATES = 64
"""Candidates for the nearest by estimate, beside the measured nodes; nodes beyond would not be chosen."""
LIARS = 0.15
LIE_MS = 300.0
JOINERS = 48
JOINED = (5, 10, 20)
NEAREST, PROBED = 10, 30
FLOORS = {"floor": 3, "floor-5d": 5}
"""Dimensions of the offline fits of all pairs by refit's steps, the best possible in each space."""
FLOOR_STEPS, FLOOR_PAIRS = 400, 512
FLOOR_STARTS, FLOOR_TRIAL = 6, 60
"""A fit can fold: of so many starts the best after so many steps continues."""

ALGORITHMS = (*CONTENDERS, *FLOORS)
DEFAULT_ALGORITHMS = ("refit", "refit-32", "vivaldi", "serf", "serf-32", "serf-all", "floor")


class Run(NamedTuple):
    """A settled network; ``curve`` holds probes, median and 90th percentile of the error, and movement (ms) on the way."""

    space: Space
    movement_ms: float
    curve: Curve
    honest: NDArray[np.bool_]


class Key(NamedTuple):
    algorithm: str
    data: str


class MatrixPoint(NamedTuple):
    """A matrix on which an algorithm runs."""

    matrix: RttMatrix
    algorithm: str
    seed: int
    probes: int
    notify: Notify


def run(
    matrices: Sequence[RttMatrix],
    algorithms: Sequence[str] = (),
    *,
    seed: int = 1,
    probes: int = PROBES,
    notify: Notify = ignore,
) -> tuple[dict[str, Any], dict[Key, list[list[Pictured]]]]:
    """Return ``{"name": "coordinates", "rows": [...]}``, a row for each matrix and algorithm, and all outcomes.

    Raises :class:`SbonError` ``unknown-algorithm``.
    """
    for name in algorithms:
        if name not in ALGORITHMS:
            hint = ", ".join(ALGORITHMS)
            raise SbonError("unknown-algorithm", f"there is no algorithm {name!r}", where="--algorithm", hint=hint)
    points = (
        (0, MatrixPoint(matrix, name, seed, probes, notify)) for matrix in matrices for name in algorithms or DEFAULT_ALGORITHMS
    )
    trials = EXPERIMENT.collect(points)
    return EXPERIMENT.result(trials), trials


def measure(point: MatrixPoint) -> Iterator[tuple[Key, Pictured]]:
    name, matrix = point.algorithm, point.matrix
    point.notify(f"{name} on {matrix.name}, {matrix.nodes} nodes")
    of = _floor if name in FLOORS else _contender
    yield Key(name, matrix.name), of(name, matrix, point.seed, point.probes)


def _contender(name: str, matrix: RttMatrix, seed: int, probes: int) -> Pictured:
    clean = simulate(CONTENDERS[name](matrix.nodes, seed), matrix, seed, probes)
    lied = simulate(CONTENDERS[name](matrix.nodes, seed), matrix, seed, probes, liars=LIARS)
    rng = np.random.default_rng((seed, 2))
    joined = _join(clean.space, matrix, rng, seed)
    recall, probed = _recall(clean.space, matrix, rng)
    return _pictured(
        name,
        matrix,
        clean.space.arrays(),
        clean,
        movement_ms=clean.movement_ms,
        samples_to_settle=_settled(clean.curve),
        **{f"join{count}": joined[count] for count in JOINED},
        recall10=recall,
        recall10_probed=probed,
        liars=lied.curve[-1][1],
    )


def simulate(space: Space, matrix: RttMatrix, seed: int, probes: int, *, liars: float = 0.0) -> Run:
    """Run all nodes for so many samples each. Raise ``FloatingPointError`` if an estimate is not a number."""
    rng = np.random.default_rng((seed, 1))
    everyone = list(range(matrix.nodes))
    honest = np.ones(matrix.nodes, dtype=np.bool_)
    honest[rng.permutation(matrix.nodes)[: int(liars * matrix.nodes)]] = False
    lies = [space.lie(vector) for vector in rng.uniform(-LIE_MS, LIE_MS, size=(matrix.nodes, 3)).tolist()]
    curve: Curve = []
    movement: list[float] = []
    before = space.arrays()
    for turn in range(probes):
        if turn % CHOOSE_EVERY == 0:
            announced = [space.place(node) if honest[node] else lies[node] for node in everyone]
            _choose(space, before, announced, first=turn == 0)
        targets = np.array([_or_self(space.next(node), node) for node in everyone])
        samples = matrix.sample(np.array(everyone), targets, rng)
        announced = [space.place(node) if honest[node] else lies[node] for node in everyone]
        for node, peer, rtt_ms in zip(everyone, targets.tolist(), samples.tolist(), strict=True):
            if rtt_ms == rtt_ms:
                space.take(node, peer, rtt_ms, announced[peer], float(turn))
        space.settle(everyone)
        coordinates = space.arrays()
        movement.append(float(np.mean(np.linalg.norm(coordinates[:, :-1] - before[:, :-1], axis=1))))
        before = coordinates
        if (turn + 1) % CHECK_EVERY == 0 or turn + 1 == probes:
            errors = relative_errors(distances_ms(coordinates)[honest][:, honest], matrix.truth[honest][:, honest])
            curve.append((turn + 1, *_median_p90(errors), float(np.mean(movement[-CHECK_EVERY:]))))
    return Run(space, float(np.mean(movement[-probes // 5 :])), curve, honest)


def _or_self(peer: int | None, node: int) -> int:
    return node if peer is None else peer


def _choose(space: Space, coordinates: Floats, announced: Sequence[object], *, first: bool) -> None:
    """Choose each node's neighbours by all claimed coordinates: first any of all nodes, then with near nodes."""
    estimates = distances_ms(coordinates, space.arrays(announced))
    measured = [list(space.measured_ms(node)) for node in range(len(coordinates))]
    for node, known in enumerate(measured):
        estimates[node, [node, *known]] = np.inf
    many = min(CANDIDATES, len(coordinates) - 1)
    nearest = np.argpartition(estimates, many - 1, axis=1)[:, :many]
    for node, known in enumerate(measured):
        candidates = range(len(coordinates)) if first else sorted({*nearest[node].tolist(), *known, *space.neighbours(node)})
        space.choose(node, {peer: announced[peer] for peer in candidates if peer != node})


def _join(space: Space, matrix: RttMatrix, rng: np.random.Generator, seed: int) -> dict[int, float]:
    """Return the median relative error of fresh nodes in place of old ones to all others, by probes of each."""
    chosen = rng.permutation(matrix.nodes)[: min(JOINERS, max(1, matrix.nodes // 3))]
    settled = space.arrays()
    fresh = space.anew(len(chosen), seed + 1)
    order = [[int(peer) for peer in rng.permutation(matrix.nodes) if peer != own] for own in chosen]
    medians = {}
    for turn in range(max(JOINED)):
        peers = np.array([others[turn % len(others)] for others in order])
        for number, (peer, rtt_ms) in enumerate(zip(peers.tolist(), matrix.sample(chosen, peers, rng).tolist(), strict=True)):
            if rtt_ms == rtt_ms:
                fresh.take(number, peer, rtt_ms, space.place(peer), float(turn))
        fresh.settle(range(len(chosen)))
        if turn + 1 in JOINED:
            errors = relative_errors(distances_ms(fresh.arrays(), settled), matrix.truth[chosen])
            medians[turn + 1] = _median_p90(errors)[0]
    return medians


def _recall(space: Space, matrix: RttMatrix, rng: np.random.Generator) -> tuple[float, float]:
    """Return the recall of the ten nearest by coordinates alone, and by measurements with pings of 30 candidates."""
    estimates = distances_ms(space.arrays())
    alone, probed = [], []
    for node in range(matrix.nodes):
        others = [peer for peer in range(matrix.nodes) if np.isfinite(matrix.truth[node, peer])]
        true = _least(matrix.truth[node], others)
        alone.append(len(true & _least(estimates[node], others)) / len(true))
        times = {peer: rtt_ms for peer, rtt_ms in space.measured_ms(node).items() if peer in set(others)}
        candidates_probed = sorted(set(others) - set(times), key=lambda peer: (estimates[node, peer], peer))[:PROBED]
        pings = np.array(
            [matrix.sample(np.full(len(candidates_probed), node), np.array(candidates_probed, dtype=int), rng) for _ in range(3)]
        )
        times |= dict(zip(candidates_probed, np.where(np.isfinite(pings), pings, np.inf).min(axis=0).tolist(), strict=True))
        probed.append(len(true & _least(times, list(times))) / len(true))
    return float(np.mean(alone)), float(np.mean(probed))


def _least(times: Floats | dict[int, float], among: Sequence[int]) -> set[int]:
    return set(sorted(among, key=lambda peer: (times[peer], peer))[:NEAREST])


def _floor(name: str, matrix: RttMatrix, seed: int, probes: int) -> Pictured:
    """Fit all nodes to all their true times at once, repeatedly; for large matrices, a part of the nodes."""
    rng = np.random.default_rng((seed, 3))
    count, dimensions = matrix.nodes, FLOORS[name]
    many = min(count - 1, FLOOR_PAIRS)
    peers = np.array([rng.permutation(np.delete(np.arange(count), node))[:many] for node in range(count)])
    times = np.take_along_axis(matrix.truth, peers, axis=1)
    known = np.isfinite(times)
    known[~known.any(axis=1), 0] = False
    reached = known.any(axis=1)
    times = np.where(known, np.maximum(times, refit.MIN_RTT_MS), refit.MIN_RTT_MS)

    def fit(positions: Floats, steps: int) -> Floats:
        for _ in range(steps):
            positions[reached] = refit.step(
                positions[reached], positions[peers[reached]], times[reached], known[reached]
            ).position
        return positions

    def missed(positions: Floats) -> float:
        return _median_p90(relative_errors(distances_ms(_unadjusted(positions)), matrix.truth))[0]

    starts = (np.concatenate([rng.normal(0, 1, (count, dimensions)), np.zeros((count, 1))], axis=1) for _ in range(FLOOR_STARTS))
    best = min((fit(start, FLOOR_TRIAL) for start in starts), key=missed)
    return _pictured(name, matrix, _unadjusted(fit(best, FLOOR_STEPS)), None)


def _unadjusted(positions: Floats) -> Floats:
    return np.concatenate([positions, np.zeros((len(positions), 1))], axis=1)


COLUMNS = (
    "median_unmeasured",
    "p90_unmeasured",
    "movement_ms",
    "samples_to_settle",
    *(f"join{count}" for count in JOINED),
    "recall10",
    "recall10_probed",
    "liars",
)


def _pictured(name: str, matrix: RttMatrix, coordinates: Floats, run: Run | None, **columns: float) -> Pictured:
    errors = relative_errors(distances_ms(coordinates), matrix.truth)
    median, p90 = _median_p90(errors)
    row: dict[str, Any] = {"algorithm": name, "data": matrix.name, "median": median, "p90": p90} | dict.fromkeys(COLUMNS)
    if run is not None:
        unmeasured = errors.copy()
        for node in range(matrix.nodes):
            measured = run.space.neighbours(node)
            unmeasured[node, measured] = unmeasured[measured, node] = np.nan
        if np.isfinite(unmeasured).any():
            columns["median_unmeasured"], columns["p90_unmeasured"] = _median_p90(unmeasured)
    row |= columns
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
    return Pictured(rounded, matrix, coordinates, errors, run.curve if run else [])


def relative_errors(estimates: Floats, truth: Floats) -> Floats:
    """Return |estimate - truth| / truth, NaN without truth."""
    if not np.isfinite(estimates).all():
        raise FloatingPointError("an estimate is not a number")
    errors: Floats = np.abs(estimates - truth) / truth
    return errors


def _median_p90(errors: Floats) -> tuple[float, float]:
    known = errors[np.isfinite(errors)]
    return float(np.median(known)), float(np.percentile(known, 90))


def _settled(curve: Curve) -> int:
    """Return the number of probes after which the median error stays within a tenth of its last value."""
    settled = curve[-1][0]
    for probes, median, *_ in reversed(curve):
        if median > 1.1 * curve[-1][1]:
            break
        settled = probes
    return settled


EXPERIMENT = Experiment(
    name="coordinates",
    measure=measure,
    rows=lambda key, by_seed: [run.row for seed in by_seed for run in seed],
    pictures=PICTURES,
)
