"""The memory of measured pairs, and the limits on measurements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sbon_node.base.token_buckets import TokenBucket, TokenBuckets
from sbon_node.overlay.directory.measuring import MeasuredPairs, Measurement


def test_a_pair_is_known_from_both_ends_until_it_is_too_old() -> None:
    pairs = MeasuredPairs(limit=8)
    pairs.put(("b", "a"), Measurement(20.0, "b", at=100.0))
    assert pairs.get(("a", "b"), 5.0, 105.0) == pairs.get(("b", "a"), 5.0, 105.0) == Measurement(20.0, "b", 100.0)
    assert pairs.get(("a", "b"), 5.0, 105.1) is None
    assert pairs.get(("a", "c"), 5.0, 100.0) is None
    pairs.put(("a", "b"), Measurement(30.0, "c", at=99.0))
    assert pairs.get(("a", "b"), 9.0, 101.0) == Measurement(20.0, "b", 100.0), "an older one teaches nothing"


def test_the_least_recently_used_pair_is_dropped_first() -> None:
    pairs = MeasuredPairs(limit=3)
    for name in "bcd":
        pairs.put(("a", name), Measurement(1.0, "a", 0.0))
    assert pairs.get(("b", "a"), 1.0, 0.0) is not None
    pairs.put(("a", "e"), Measurement(1.0, "a", 0.0))
    assert [pairs.get(("a", name), 1.0, 0.0) is not None for name in "bcde"] == [True, False, True, True]
    pairs.forget("a")
    assert [pairs.get(("a", name), 1.0, 0.0) for name in "bcde"] == [None] * 4


@given(st.integers(1, 9), st.integers(1, 20), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=40))
def test_a_bucket_gives_its_capacity_and_its_rate_and_says_truly_when_there_is_more(
    capacity: int, rate_s: int, asked: list[tuple[int, int]]
) -> None:
    """Times in eighths of a second, which add up without error."""
    bucket = TokenBucket(capacity, float(rate_s))
    now = taken = 0.0
    for eighths, wanted in asked:
        now += eighths / 8
        wait_s = bucket.take(min(wanted, capacity), now)
        if wait_s > 0:
            assert bucket.take(min(wanted, capacity), now + wait_s * 0.99) > 0
            now += wait_s
            assert bucket.take(min(wanted, capacity), now) == 0
        taken += min(wanted, capacity)
        assert taken <= capacity + rate_s * now + 1e-6


def test_buckets_of_askers_are_each_their_own_within_one_of_all_and_bounded() -> None:
    buckets = TokenBuckets(whole=TokenBucket(6, 1.0), each=lambda: TokenBucket(3, 1.0), most=2)
    assert buckets.take("a", 3, 0.0) == 0.0
    assert buckets.take("a", 1, 0.0) == 1.0
    assert buckets.take("b", 2, 0.0) == 0.0, "what a was refused was not taken of the whole"
    assert buckets.take("c", 2, 0.0) == 1.0, "of the whole one is left"
    assert buckets.take("c", 1, 0.0) == 0.0
    assert buckets.take("a", 3, 3.0) == 0.0
    assert [buckets.take(f"stranger-{i}", 1, 3.0) for i in range(3)] == [1.0, 1.0, 1.0], "new names get no more"
    assert len(buckets) == 2
