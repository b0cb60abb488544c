"""Nodes with the same messages about a stream agree, in any order and with any repetition."""

from __future__ import annotations

from functools import reduce

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sbon_node.ownership.catalogue import merge
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column

sources = st.builds(
    SourceDeclaration,
    stream=st.just("s"),
    name=st.sampled_from(["x", "y", "z"]),
    node=st.sampled_from(["a", "b"]),
    connector=st.just("generator"),
    rows_s=st.sampled_from([1.0, 2.0]),
    turn=st.sampled_from([1, 2, 3]),
    epoch=st.sampled_from([1, 2, 3]),
)
entries = st.builds(
    CatalogEntry,
    declaration=st.builds(
        StreamDeclaration,
        name=st.just("s"),
        schema=st.just((Column("ts", "timestamp"),)),
        event_time=st.just("ts"),
        delay_ms=st.sampled_from([0, 5]),
    ),
    sources=st.lists(sources, max_size=3, unique_by=lambda s: s.name).map(tuple),
    version=st.sampled_from([1, 2]),
    origin=st.sampled_from(["a", "b"]),
    dropped_ms=st.sampled_from([0, 5, 9]),
    detached=st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from([1, 2]), max_size=2),
).map(lambda entry: msgspec.structs.replace(entry, dropped=entry.dropped_ms > 0))


def known(heard: list[CatalogEntry]) -> CatalogEntry:
    return reduce(merge, heard[1:], merge(None, heard[0]))


@given(st.lists(entries, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(heard: list[CatalogEntry], random: object) -> None:
    again = [*heard, *heard]
    random.shuffle(again)  # type: ignore[attr-defined]
    assert known(again) == known(heard)


@given(entries, entries, entries)
def test_merging_is_idempotent_across_nodes(a: CatalogEntry, b: CatalogEntry, c: CatalogEntry) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(entries, entries)
def test_a_dropped_stream_stays_dropped_within_its_generation(a: CatalogEntry, b: CatalogEntry) -> None:
    both = merge(a, b)
    if a.version == b.version and (a.dropped or b.dropped):
        assert both.dropped
        assert both.sources == ()


@given(entries, entries)
def test_a_detached_source_stays_detached_until_attached_again(a: CatalogEntry, b: CatalogEntry) -> None:
    both = merge(a, b)
    if a.version == b.version and not both.dropped:
        for name in ("x", "y"):
            gone = max(a.detached.get(name, 0), b.detached.get(name, 0))
            turns = [source.turn for source in (*a.sources, *b.sources) if source.name == name and source.turn > gone]
            assert [source.turn for source in both.sources if source.name == name] == ([max(turns)] if turns else [])


@given(entries, entries)
def test_a_source_is_where_its_latest_epoch_says(a: CatalogEntry, b: CatalogEntry) -> None:
    both = merge(a, b)
    for source in both.sources:
        same = [s for entry in (a, b) if entry.version == both.version for s in entry.sources if s.id == source.id]
        assert source.epoch == max(s.epoch for s in same)


def test_the_later_turn_of_a_source_wins_and_of_one_turn_the_later_epoch() -> None:
    def with_source(turn: int, epoch: int) -> CatalogEntry:
        declaration = StreamDeclaration(name="s", schema=(Column("ts", "timestamp"),), event_time="ts")
        source = SourceDeclaration(stream="s", name="x", node=f"n{epoch}", connector="generator", turn=turn, epoch=epoch)
        return CatalogEntry(declaration=declaration, sources=(source,))

    for earlier, later in (((1, 1), (1, 2)), ((1, 3), (2, 1)), ((2, 2), (2, 3))):
        for both in (merge(with_source(*earlier), with_source(*later)), merge(with_source(*later), with_source(*earlier))):
            assert [(one.turn, one.epoch) for one in both.sources] == [later]
