"""A query's progress, from the reports of its sources, links and operators."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sbon_node.engine.promise import promised_ms
from sbon_node.queries.describing.progress import progress_of, slowest_lag_ms
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.operators import OperatorStats
from sbon_protocol.api.queries import LinkInfo, OperatorInfo
from sbon_protocol.api.streams import SourceInfo


def source(name: str, **told: Any) -> SourceInfo:
    declared = SourceDeclaration(stream="s", name=name, node=name, connector="file")
    return SourceInfo(**{"source": declared, "state": "running", "finite": True, **told})


def link(one: SourceInfo, rows: int, target: str = "o1") -> LinkInfo:
    return LinkInfo(stream=one.source.id, source_node="a", target=target, target_node="b", rows=rows, bytes=0, latency_ms=1.0)


HALF, WHOLE = source("a", rows=500, read_share=0.5, rows_s=20.0), source("b", rows=3000, read_share=1.0, state="ended")
OPERATORS = (
    OperatorInfo(id="o1", node="b", fragment="", state="running", watermark_ms=4_000),
    OperatorInfo(id="o2", node="b", fragment="", state="running", watermark_ms=2_500, stats=OperatorStats(rows_out_s=2.0)),
)


def found(sources: tuple[SourceInfo, ...], links: tuple[LinkInfo, ...], **told: Any) -> Any:
    given = {"rows": 7, "state": "running", "elapsed_s": 30.0, **told}
    return progress_of(sources, links, OPERATORS, ("o2",), **given)


def test_the_share_is_of_all_rows_and_counts_what_this_query_has_taken() -> None:
    """Two files: 1,000 rows with 500 read and 400 taken, and 3,000 rows that an earlier query has read."""
    progress = found((HALF, WHOLE), (link(HALF, 400), link(WHOLE, 600)))
    assert (progress.rows_in, progress.rows_out) == (1000, 7)
    assert progress.read_share == pytest.approx(1000 / 4000)
    assert progress.left_s == pytest.approx(90.0)
    assert (progress.rows_in_s, progress.rows_out_s) == (20.0, 2.0)


def test_the_slower_of_two_readers_of_a_source_counts() -> None:
    assert found((WHOLE,), (link(WHOLE, 3000), link(WHOLE, 300, "o2"))).read_share == pytest.approx(0.1)
    assert found((WHOLE,), (link(WHOLE, 9000),)).read_share == 1.0


def test_unknown_values_are_not_made_up() -> None:
    endless = source("c", finite=False, rows=10, rows_s=3.0)
    progress = found((HALF, endless), (link(HALF, 400), link(endless, 10)))
    assert (progress.read_share, progress.left_s, progress.endless, progress.rows_in) == (None, None, ("s at c",), 410)
    for state in ("unreachable", "lost"):
        away = source("d", state=state, finite=False)
        assert (found((away,), ()).read_share, found((away,), ()).endless) == (None, ("s at d",))
        assert found((source("d", state=state),), ()).endless == ()
    for state in ("ended", "failed: no such file"):
        assert found((source("f", state=state, finite=False),), ()).endless == ()
    result = SourceDeclaration(stream="s", name="query", node="a", connector="query", options={"query": "q1.7"})
    assert found((SourceInfo(source=result, state="running"),), ()).endless == ()
    fresh = source("e", read_share=0.0)
    assert (found((fresh,), ()).read_share, found((fresh,), ()).left_s) == (0.0, None)
    assert found((HALF,), (), rows=None).rows_out is None


def test_the_lag_is_event_time_between_sources_and_output() -> None:
    told = source("f", rows=1, read_share=0.5, watermark_ms=9_000)
    assert found((told,), (link(told, 1),)).lag_ms == 6_500
    assert found((HALF,), (link(HALF, 1),)).lag_ms is None
    assert slowest_lag_ms((told, HALF), OPERATORS) == 6_500


@pytest.mark.parametrize("state", ["unreachable", "lost"])
def test_a_part_that_cannot_be_seen_may_be_the_one_that_is_behind(state: Any) -> None:
    told, away = source("f", rows=1, watermark_ms=9_000), source("g", state=state)
    silent = msgspec.structs.replace(OPERATORS[1], id="o3", state=state, watermark_ms=None)
    given = {"rows": 7, "state": "running", "elapsed_s": 30.0}
    assert found((told, away), ()).lag_ms is None
    assert progress_of((told,), (), (*OPERATORS, silent), ("o2", "o3"), **given).lag_ms is None
    assert slowest_lag_ms((told, away), OPERATORS) is None
    assert slowest_lag_ms((told,), (*OPERATORS, silent)) is None


@pytest.mark.parametrize("begins_ms", [promised_ms(0), 0, -2_000])
def test_an_operator_at_its_beginning_has_no_lag(begins_ms: int) -> None:
    """Else the lag would be all the time since 1970."""
    begun = (OPERATORS[0], msgspec.structs.replace(OPERATORS[1], watermark_ms=begins_ms))
    given = {"rows": 0, "state": "running", "elapsed_s": 1.0}
    now, early = source("f", rows=1, watermark_ms=1_767_225_600_000), source("f", rows=1, watermark_ms=-1_000)
    assert progress_of((now,), (), begun, ("o2",), **given).lag_ms is None
    assert slowest_lag_ms((now,), begun) is None
    assert slowest_lag_ms((early,), begun) == max(0, -1_000 - begins_ms)


def test_a_query_that_finished_has_read_everything_and_has_no_pace() -> None:
    over = found((HALF,), (), state="finished")
    assert (over.read_share, over.rows_in_s, over.rows_out_s, over.lag_ms, over.left_s) == (1.0, None, None, None, None)
    assert found((HALF,), (link(HALF, 400),), state="stopped").read_share == pytest.approx(0.4)


def test_a_source_read_to_its_end_has_no_pace_although_operators_still_work() -> None:
    ended = source("g", rows=3000, read_share=1.0, state="ended", rows_s=50_000.0)
    progress = found((ended,), (link(ended, 3000),))
    assert (progress.read_share, progress.left_s, progress.rows_in_s) == (1.0, None, None)
    assert found((ended, HALF), (link(ended, 3000), link(HALF, 400))).rows_in_s == 20.0
