"""Rates of a plan's sources: measured, declared, or by what their nodes read of them."""

from __future__ import annotations

import pytest

from sbon_node.model.measurements import SourcePace
from sbon_node.model.samples import StreamSample
from sbon_node.planning.sql.stages.estimate import ReadSource, StreamEstimate, estimates_of_sources
from sbon_protocol.api.catalogue import ASSUMED_ROWS_S, SourceDeclaration

SECOND = 1_000_000


def read(name: str, node: str = "n", *, rows_s: float | None = None, unpaced: bool = False) -> ReadSource:
    source = SourceDeclaration(stream="s", name=name, node=node, connector="file", rows_s=rows_s, row_bytes=20.0, unpaced=unpaced)
    return ReadSource(source, (), "ts")


def sample(
    rows: float | None, read_rows_s: float | None, *, step_s: float = 1.0, kept: int = 100, every: int = 1
) -> StreamSample:
    times = tuple(int(i * every * step_s * SECOND) for i in range(kept))
    return StreamSample(columns={"ts": times}, seen=kept * every, rows=rows, read_rows_s=read_rows_s)


def estimates(
    sources: dict[str, ReadSource], samples: dict[str, StreamSample], paces: dict[str, SourcePace] | None = None
) -> dict[str, tuple[float, float, bool]]:
    found = estimates_of_sources(sources, paces or {}, samples)
    return {name: (stream.rate.rows_s, stream.event_speed, stream.unpaced) for name, stream in found.items()}


def test_a_file_at_full_speed_has_the_rate_at_which_its_node_reads() -> None:
    found = estimates({"a": read("a")}, {"a": sample(4e6, 250_000.0, step_s=0.01)})
    assert found["a"] == (pytest.approx(250_000), pytest.approx(2500), True)


def test_two_files_keep_the_proportion_of_their_rows() -> None:
    sources = {"trades": read("trades", "one"), "news": read("news", "two")}
    samples = {"trades": sample(5e6, 250_000.0), "news": sample(25_000, 250_000.0, step_s=200.0)}
    found = estimates(sources, samples)
    assert (found["trades"][0], found["news"][0]) == (pytest.approx(250_000), pytest.approx(1250))
    assert found["trades"][1] == pytest.approx(found["news"][1])


def test_files_at_one_node_share_its_speed() -> None:
    sources = {name: read(name) for name in "ab"}
    found = estimates(sources, {name: sample(1e6, 100_000.0) for name in "ab"})
    assert [found[name][0] for name in "ab"] == [pytest.approx(50_000)] * 2


def test_a_small_file_takes_no_less_than_the_shortest_time() -> None:
    assert estimates({"a": read("a")}, {"a": sample(120.0, None)})["a"][0] == pytest.approx(120)
    assert estimates({"a": read("a")}, {"a": sample(0.0, None, kept=0)})["a"][0] > 0


def test_a_declared_or_measured_rate_stays() -> None:
    samples = {"a": sample(1e6, 100_000.0, step_s=0.5)}
    assert estimates({"a": read("a", rows_s=30.0)}, samples)["a"] == (30.0, pytest.approx(15), False)
    paced = {"a": SourcePace(rows_s=40.0, row_bytes=25.0)}
    assert estimates({"a": read("a", rows_s=30.0)}, samples, paced)["a"] == (40.0, pytest.approx(20), False)
    assert estimates({"a": read("a")}, {}, paced)["a"] == (40.0, 1.0, False)


def test_without_a_sample_the_rate_is_assumed() -> None:
    assert estimates({"a": read("a")}, {})["a"] == (ASSUMED_ROWS_S, 1.0, False)
    assert estimates({"a": read("a", unpaced=True)}, {})["a"] == (ASSUMED_ROWS_S, 1.0, True)


def test_a_live_stream_has_the_speed_of_the_clock_whatever_its_sample() -> None:
    assert estimates({"a": read("a")}, {"a": sample(None, None, step_s=90.0)})["a"] == (ASSUMED_ROWS_S, 1.0, False)


def test_the_speed_is_that_of_most_rows_and_of_thinned_ones() -> None:
    odd = sample(1e6, 1000.0)
    odd = StreamSample(columns={"ts": (-(10**15), *odd.columns["ts"], None, 10**17)}, seen=103, rows=1e6, read_rows_s=1000.0)
    assert estimates({"a": read("a")}, {"a": odd})["a"][1] == pytest.approx(1000, rel=0.05)
    assert estimates({"a": read("a")}, {"a": sample(1e6, 1000.0, every=8)})["a"][1] == pytest.approx(1000, rel=0.05)
    same = StreamSample(columns={"ts": (5, 5, 5)}, seen=3, rows=1e6, read_rows_s=2e6)
    assert estimates({"a": read("a")}, {"a": same})["a"][1] == pytest.approx(1e6 / ASSUMED_ROWS_S)


def test_speeds_of_several_streams_count_by_their_rows() -> None:
    fast, slow = (estimates_of_sources({"a": read("a")}, {}, {"a": sample(1e6, speed)})["a"] for speed in (9000.0, 1000.0))
    together = StreamEstimate.of_all([fast, slow])
    assert together.event_speed == pytest.approx((9000 * 9000 + 1000 * 1000) / 10_000)
    assert together.unpaced
