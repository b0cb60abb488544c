"""Settled coordinates of a whole network, by the daemon's own code."""

import numpy as np

from sbon_lab.experiments.coordinates.rtt_matrix import QUEUEING
from sbon_lab.experiments.harness.network import Floats, Ints, Network
from sbon_node.overlay.space import refit, vivaldi
from sbon_node.overlay.space.coordinate import MAX_MS
from sbon_node.overlay.space.cost import apart
from sbon_node.overlay.space.settings import SpaceSettings

REFIT_STEPS, CHOOSE_EVERY = 240, 60
VIVALDI_TURNS = 1500
AT_ONCE = 1024
"""Number of nodes whose nearest neighbours are searched together."""


def refitted(network: Network, dimensions: int, seed: int) -> Floats:
    """Return refit coordinates with heights, shape [n, dimensions + 1], the height last; milliseconds of RTT.

    Every node has the default neighbours, first at random, then with the nearest by its estimates. RTTs are samples with
    queueing after the percentile filter. All nodes step at once.
    """
    rng, settings = np.random.default_rng((seed, dimensions, 21)), SpaceSettings()
    many, rtt_ms = network.nodes, 2 * network.latency_ms
    rows = np.arange(many)[:, None]
    positions = np.concatenate([rng.normal(0, 1, (many, dimensions)), np.zeros((many, 1))], axis=1)
    anyone = _at_random(many, settings.random_neighbours, rng)
    near = anyone[:, :0]
    for step in range(REFIT_STEPS):
        if step % CHOOSE_EVERY == 0:
            if step:
                near = _nearest(positions, settings.near_neighbours)
            neighbours = np.concatenate([anyone, near], axis=1)
            base = np.maximum(rtt_ms[rows, neighbours], refit.MIN_RTT_MS)
            samples = 1 + rng.exponential(QUEUEING, (settings.filter_samples, *base.shape))
            times = base * np.percentile(samples, settings.filter_percentile, axis=0)
            known = np.ones(times.shape, dtype=np.bool_)
        positions = refit.step(positions, positions[neighbours], times, known).position
    return positions


def vivaldi_positions(network: Network, seed: int, *, noise: float, dimensions: int = 3) -> Floats:
    """Return Vivaldi coordinates without heights, shape [n, dimensions + 1], the last 0.

    Nodes have 32 random neighbours; samples have a normal relative error ``noise``.
    """
    drawn = np.random.default_rng((seed, 22))
    many, rtt_ms = network.nodes, 2 * network.latency_ms
    neighbours = _at_random(many, SpaceSettings().random_neighbours, drawn)
    vectors, errors = drawn.normal(0, 1, (many, dimensions)), np.ones(many)
    for turn in range(VIVALDI_TURNS):
        peers = neighbours[:, turn % neighbours.shape[1]]
        samples = rtt_ms[np.arange(many), peers] * np.maximum(1 + drawn.normal(0, noise, many), 0.0)
        vectors, errors = update_all(vectors, errors, peers, samples)
    return np.concatenate([vectors, np.zeros((many, 1))], axis=1)


def update_all(
    vectors: Floats, errors: Floats, peers: Ints, rtt_ms: Floats, *, error_gain: float = 0.25, step_gain: float = 0.25
) -> tuple[Floats, Floats]:
    """Run :func:`sbon_node.overlay.space.vivaldi.update` for many nodes at once.

    Shapes: vectors [n, d], errors [n], the index of each node's peer, and its sample. No two of them may be at one point.
    """
    rtt = np.maximum(rtt_ms, vivaldi.MIN_RTT_MS)
    clipped = np.clip(errors, vivaldi.MIN_ERROR, vivaldi.MAX_ERROR)
    weight = clipped / (clipped + clipped[peers])
    away = vectors - vectors[peers]
    length = np.linalg.norm(away, axis=1)
    error = np.abs(length - rtt) / rtt * error_gain * weight + clipped * (1 - error_gain * weight)
    step = step_gain * weight * (rtt - length) / length
    return np.clip(vectors + step[:, None] * away, -MAX_MS, MAX_MS), np.clip(error, vivaldi.MIN_ERROR, vivaldi.MAX_ERROR)


def estimates_ms(positions: Floats, rows: Ints, columns: Ints) -> Floats:
    """Return one-way latencies between nodes by coordinates, shape [rows, columns]; 0 from a node to itself."""
    from_rows, other = positions[rows], positions[columns]
    estimates = apart(from_rows[:, :-1], other[:, :-1])
    estimates += from_rows[:, -1, None]
    estimates += other[:, -1]
    estimates /= 2
    estimates[rows[:, None] == columns] = 0.0
    return estimates


def _at_random(many: int, count: int, rng: np.random.Generator) -> Ints:
    """Return ``count`` other nodes for each node, or all others."""
    count = min(count, many - 1)
    others: Ints = rng.random((many, many)).argsort(axis=1)
    drawn: Ints = others[others != np.arange(many)[:, None]].reshape(many, many - 1)[:, :count]
    return drawn


def _nearest(positions: Floats, count: int) -> Ints:
    everyone, count = np.arange(len(positions)), min(count, len(positions) - 1)
    nearest: list[Ints] = []
    for start in range(0, len(positions), AT_ONCE):
        rows = everyone[start : start + AT_ONCE]
        apart = estimates_ms(positions, rows, everyone)
        apart[np.arange(len(rows)), rows] = np.inf
        nearest.append(np.argpartition(apart, count - 1, axis=1)[:, :count])
    return np.concatenate(nearest)
