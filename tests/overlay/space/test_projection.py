"""Places on paper: turned, not bent."""

from __future__ import annotations

import numpy as np
import pytest

from sbon_node.overlay.space.projection import principal_axes


def test_a_plane_in_space_is_shown_as_it_is() -> None:
    rng = np.random.default_rng(7)
    flat = rng.uniform(-80, 80, (30, 2)) @ rng.normal(size=(2, 3)) + [5.0, -9.0, 40.0]
    shown, share = principal_axes(flat)
    assert share == pytest.approx(1.0)
    true = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    assert np.linalg.norm(shown[:, None] - shown[None], axis=2) == pytest.approx(true)
    assert shown.mean(axis=0) == pytest.approx(0.0)
    assert np.ptp(shown[:, 0]) > np.ptp(shown[:, 1])


def test_the_share_that_does_not_fit_is_reported() -> None:
    corners = np.array([[x, y, z] for x in (0, 6) for y in (0, 4) for z in (0, 2)], dtype=float)
    shown, share = principal_axes(corners)
    assert share == pytest.approx((36 + 16) / (36 + 16 + 4))
    assert sorted({round(abs(x), 6) for x in shown[:, 0]} | {round(abs(y), 6) for y in shown[:, 1]}) == [2.0, 3.0]


@pytest.mark.parametrize("points", [[[1.0, 2.0, 3.0]], [[4.0, 4.0]] * 3, [[7.0], [9.0]]])
def test_few_nodes_few_dimensions_and_nodes_at_one_place(points: list[list[float]]) -> None:
    shown, share = principal_axes(points)
    assert (shown.shape, share) == ((len(points), 2), 1.0)
    assert np.isfinite(shown).all()
    assert np.ptp(shown[:, 0]) == pytest.approx(2.0 if len(points) == 2 else 0.0)
    assert shown[:, 1] == pytest.approx(0.0)


def test_the_same_nodes_lie_the_same_way_round_whatever_the_order() -> None:
    points = np.random.default_rng(3).normal(size=(9, 3)) * [90, 30, 5]
    assert principal_axes(points[::-1])[0][::-1] == pytest.approx(principal_axes(points)[0])
