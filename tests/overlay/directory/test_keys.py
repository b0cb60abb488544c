"""Rendezvous hashing: every node names the same owners, and who goes or comes moves its own keys alone."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sbon_node.overlay.directory.view import owners, weight

NAMES = [f"n{i}" for i in range(10)]
names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=12, unique=True)


def test_weights_are_those_of_another_implementation() -> None:
    """By coreutils: ``printf 2:n8flights | b2sum -l 128``."""
    assert weight("flights", "n8").hex() == "b49d01a9cb51a92fb45deef45f1fdf50"
    assert weight("höhe", "são").hex() == "a2eea6e482f6fb89ec31c6f8c5d17d3d"
    assert owners("flights", NAMES, 3) == ["n5", "n8", "n2"]


@given(names, st.text(max_size=8), st.integers(-1, 14), st.randoms())
def test_owners_are_distinct_and_no_matter_in_which_order_nodes_are_known(
    names: list[str], key: str, r: int, rng: object
) -> None:
    found = owners(key, names, r)
    assert len(found) == len(set(found)) == max(0, min(r, len(names)))
    rng.shuffle(names)  # type: ignore[attr-defined]
    assert owners(key, names, r) == found
    assert owners(key, names, max(0, r - 1)) == found[: max(0, r - 1)]


@given(names, st.text(max_size=8), st.integers(1, 5), st.data())
def test_a_node_that_goes_leaves_the_order_of_the_others_as_it_was(
    names: list[str], key: str, r: int, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(names))
    before = owners(key, names, len(names))
    assert owners(key, [name for name in names if name != gone], r) == [name for name in before if name != gone][:r]


def test_keys_are_spread_evenly() -> None:
    """Each of 10 nodes has 200 of 2,000 keys; the standard deviation is 13.4, and none is off by four of these."""
    shares = Counter(owners(f"key-{i}", NAMES, 1)[0] for i in range(2000))
    assert set(shares) == set(NAMES)
    assert all(abs(share - 200) < 4 * 13.4 for share in shares.values())
