"""Pairs of queries on real nodes: which world is drawn, how usage is measured, and the figures of what was seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbon_lab.bench.usage import Area
from sbon_lab.experiments.live.pair_figures import Change, PairRun, Seen, below_after, by_pair, figure
from sbon_lab.experiments.live.pairs import (
    ROWS_S,
    SITES,
    SLOWER_RTT_MS,
    Meter,
    draw_pairs,
    next_changed,
    slowed,
    sources_of,
    write_rows,
)
from sbon_lab.suite.reference import Reference
from sbon_protocol.api.queries import LinkInfo, QueryInfo
from sbon_protocol.errors import SbonError

POINTS = np.random.default_rng(5).uniform(0, 100, (20, 2))
AREA = Area(tuple(f"s{i}" for i in range(20)), np.linalg.norm(POINTS[:, None] - POINTS[None], axis=-1).tolist())


def test_pairs_are_between_nodes_that_host_no_operators() -> None:
    world = draw_pairs(AREA, nodes=9, hosts=5, pairs=3, seed=2)
    assert world == draw_pairs(AREA, nodes=9, hosts=5, pairs=3, seed=2) != draw_pairs(AREA, nodes=9, hosts=5, pairs=3, seed=3)
    assert (*world.ends, *world.hosts) == world.area.names
    assert (len(world.ends), len(world.hosts)) == (4, 5)
    for pair in world.pairs:
        assert len({pair.consumer, *pair.nodes.values()} & set(world.ends)) == len(SITES) + 1
    first, last = world.area.names[0], world.area.names[8]
    assert world.area.one_way_ms(first, last) == AREA.one_way_ms(first, last)
    with pytest.raises(SbonError, match="21 nodes"):
        draw_pairs(AREA, nodes=21, hosts=5, pairs=1, seed=1)


def test_the_host_of_most_operators_becomes_slow_once_and_no_end_does() -> None:
    world = draw_pairs(AREA, nodes=7, hosts=3, pairs=1, seed=2)
    a, b, c = world.hosts
    assert next_changed(world, [b, c, b, world.ends[0], world.ends[0], world.ends[0]], []) == b
    assert next_changed(world, [b, c, b], [b]) == c
    assert next_changed(world, [b, b], [b]) == min(a, c)
    slow = slowed(world.area, [a, b])
    for one, other, more in ((a, c, 1), (a, b, 2), (c, world.ends[0], 0)):
        before = world.area.one_way_ms(one, other)
        assert slow.one_way_ms(one, other) == pytest.approx(before + more * SLOWER_RTT_MS / 2)
        assert slow.one_way_ms(other, one) == slow.one_way_ms(one, other)
    assert slow.one_way_ms(a, a) == 0.0


def test_rows_come_at_the_pace_of_their_times_and_the_answer_is_of_all(tmp_path: Path) -> None:
    (pair,) = draw_pairs(AREA, nodes=6, hosts=2, pairs=1, seed=1).pairs
    stream = write_rows(pair, tmp_path, 4.0, 1)
    sources = sources_of(pair, stream)
    assert {source.node for source in sources} == set(pair.nodes.values())
    assert {(source.rows_s, source.options["replay"]) for source in sources} == {(ROWS_S, 1.0)}
    rows = Reference({pair.stream: stream}).answer(pair.case)
    assert sorted(row[0] for row in rows) == list(range(0, 4 * ROWS_S * len(SITES), 2))


def link(stream: str, target: str, source_node: str, target_node: str, size: int) -> LinkInfo:
    return LinkInfo(
        stream=stream, source_node=source_node, target=target, target_node=target_node, rows=1, bytes=size, latency_ms=None
    )


def described(*links: LinkInfo) -> QueryInfo:
    """A query of which only the links count."""
    empty: dict[str, Any] = dict.fromkeys(QueryInfo.__struct_fields__, None)
    return QueryInfo(**(empty | {"links": links}))


def test_usage_is_of_the_bytes_since_the_last_look_at_the_latencies_of_now() -> None:
    area = Area(("a", "b", "c"), ((0.0, 20.0, 40.0), (20.0, 0.0, 60.0), (40.0, 60.0, 0.0)))
    meter = Meter()
    assert meter.usage(described(link("s", "q.b0", "a", "b", 5000)), 10.0, area) is None
    assert meter.usage(described(link("s", "q.b0", "a", "b", 9000)), 12.0, area) == pytest.approx(2000 * 0.010)
    moved = described(link("s", "q.b0", "a", "c", 10_000), link("q.b0", "q.sink", "c", "b", 300))
    assert meter.usage(moved, 13.0, area) == pytest.approx(1000 * 0.020 + 300 * 0.030)
    anew = described(link("s", "q.b0", "a", "c", 700), link("q.b0", "q.sink", "c", "b", 300))
    assert meter.usage(anew, 14.0, area) == pytest.approx(700 * 0.020)
    assert meter.bytes == 4000 + 1000 + 300 + 700


def looks(pair: str, usage: dict[float, tuple[float, str]], fixed: float = 1000.0) -> list[Seen]:
    return [Seen(at_s, pair, value, fixed, 50.0, 80.0, {f"{pair}-abc.b0": host}) for at_s, (value, host) in usage.items()]


SEEN = looks(
    "q0",
    {
        0: (1000, "h"),
        5: (1010, "h"),
        10: (1000, "h"),
        15: (1200, "h"),
        20: (700, "g"),
        25: (600, "g"),
        30: (500, "g"),
        35: (500, "g"),
    },
)
RUN = PairRun(SEEN, [Change(10.0, "h")], 35.0, {"q0": 3_000_000, "q0fixed": 2_000_000}, {"q0": 0, "q0fixed": 0}, {"q0": 40})


def test_a_pair_is_compared_before_a_change_and_from_two_periods_after_it() -> None:
    ended = SEEN[-1]._replace(at_s=45.0, migrating=0.0, fixed=0.0)
    assert by_pair(RUN._replace(seen=[*SEEN, ended], over_s=45.0), 10.0) == by_pair(RUN, 10.0)
    ((row),) = by_pair(RUN, 10.0)
    assert (row["changed"], row["changed_host"], row["moves"], row["moved_after_s"]) == ("h", True, 1, 10.0)
    assert (row["before"], row["after"]) == (1.005, 0.5)
    assert (row["fixed_bytes"], row["migrating_bytes"]) == (1000.0, 500.0)
    assert (row["below_after_periods"], row["rows"], row["wrong"], row["carried_mb"]) == (1, 40, 0, 5.0)


def test_usage_that_rises_again_is_not_below() -> None:
    assert below_after(SEEN[2:], 10.0, 10.0) == 1
    assert below_after([*SEEN[2:], *looks("q0", {40: (990, "g")})], 10.0, 10.0) is None
    assert below_after(SEEN[:2], 0.0, 10.0) is None
    ended = SEEN[-1]._replace(at_s=45.0, migrating=0.0, fixed=0.0)
    assert below_after([*SEEN[2:], ended], 10.0, 10.0) == 1


def test_a_second_change_begins_anew() -> None:
    more = looks("q0", {40: (980, "g"), 45: (980, "g"), 50: (980, "g"), 60: (800, "g"), 65: (400, "f")})
    run = RUN._replace(seen=[*SEEN, *more], changes=[*RUN.changes, Change(40.0, "g")], over_s=65.0)
    first, second = by_pair(run, 10.0)
    assert (first["after"], first["moves"]) == (0.5, 1)
    assert (second["before"], second["after"], second["moves"], second["moved_after_s"]) == (0.5, 0.6, 1, 25.0)
    assert second["below_after_periods"] == 2


def test_all_three_figures_are_made_of_what_was_seen() -> None:
    run = RUN._replace(seen=[*SEEN, *looks("q1", {0: (900, "h"), 5: (900, "h")})])
    over_time, _ = figure(10, run)
    assert len(over_time) == 2 * len(SEEN)
    placements, _ = figure(11, run)
    assert [(row["query"], row["placement"], row["hosts"]) for row in placements] == [
        ("q0", 0, "h"),
        ("q0", 1, "g"),
        ("q1", 0, "h"),
    ]
    queries, _ = figure(12, run)
    assert [(row["query"], row["moves"]) for row in queries] == [("q0", 1), ("q1", 0)]
    assert queries[1]["relative_change"] == pytest.approx(-0.1)
