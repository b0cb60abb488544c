"""Moving operators: their rows, and the comparison with DuckDB."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sbon_lab.migration.feed import BURST_ROWS, Feed, table_of
from sbon_lab.migration.kinds import KINDS, Answers
from sbon_lab.migration.measuring import Case, Cost, Measured
from sbon_lab.migration.moving_query import Move
from sbon_lab.migration.run import Peer, cases_of, row_of

FEED = Feed()
FRAMES = 4


def output(number: int) -> pa.Table:
    """Return the filter's result of one frame, ten rows."""
    table = table_of([row for row in FEED.frame(number, 0) if row.n % 3 == 0])
    return table.select(["ts", "n"])


def inputs(view: int = 0) -> pa.Table:
    return table_of([row for number in range(FRAMES) for row in FEED.frame(number, view)])


@pytest.mark.parametrize(
    ("numbers", "wrong"), [((0, 1, 2, 3), (0, 0)), ((0, 1, 3), (10, 0)), ((0, 1, 2, 2, 3), (0, 10)), ((0, 3, 3), (20, 10))]
)
def test_missing_and_repeated_rows_are_counted(numbers: tuple[int, ...], wrong: tuple[int, int]) -> None:
    found = pa.concat_tables(output(number) for number in numbers)
    assert Answers(KINDS["filter"], [inputs()]).wrong(found) == wrong


def test_rows_that_are_not_due_may_be_missing() -> None:
    answers = Answers(KINDS["filter"], [inputs()])
    assert answers.wrong(output(0), FEED.time_ms(27)) == (0, 0)
    assert answers.wrong(output(0), FEED.time_ms(30)) == (1, 0)
    assert answers.wrong(output(3), FEED.time_ms(30)) == (11, 0)


def test_rows_without_a_partner_are_due_once_none_can_come() -> None:
    answers = Answers(KINDS["left-join"], [inputs(0), inputs(1)], delay_ms=1000)
    row = {"ts": [FEED.time_ms(n) for n in (3, 4)], "n": [3, 4], "note": ["-", "-"], "other": [3, None]}
    found = pa.table(row | {"ts": pa.array([1000 * ts for ts in row["ts"]], pa.timestamp("us", "UTC"))})
    assert answers.wrong(found)[1] == 0
    assert answers.due_ms() == [FEED.time_ms(3) + 500, FEED.time_ms(4) + 4000]


def test_a_frame_is_found_by_a_time_that_it_reached() -> None:
    frames = range(3 * BURST_ROWS // FEED.rows)
    marks = [FEED.watermark_ms(number) for number in frames]
    assert [FEED.frame_with(mark) for mark in marks] == [*frames]
    assert [FEED.frame_with(mark + 1) for mark in marks] == [number + 1 for number in frames]
    assert FEED.frame_with(marks[0] - 10**9) == 0


def test_the_state_comes_before_all_rows_and_has_the_bytes_asked_for() -> None:
    feed = Feed(state_bytes=1_000_000)
    rows = [row for frame in feed.state() for row in frame]
    assert sum(len(row.note) for row in rows) == 1_000_000
    assert len({row.note for row in rows}) == len(rows) == -rows[0].n
    assert feed.time_ms(0) - feed.delay_ms == rows[0].ts_ms < rows[-1].ts_ms < feed.time_ms(0)


def test_a_pause_is_a_gap_beyond_the_usual_one() -> None:
    moves = [Move(10.0 * number, moved_s=10.0 * number + 4, pause_s=1.0, copied_bytes=10**6) for number in range(3)]
    measured = Measured(
        Case("tumbling", "hdfs", 1),
        moves,
        [Cost(0.5, 100.0)] * 3,
        gaps_s=[0.9, 0.5, 2.5],
        usual_gaps_s=[0.2, 0.3, 0.3, 0.4],
        delays_s=[0.5, 1.0],
        usual_delays_s=[0.5],
        probes_ms=[1.0, 40.0],
        rows=7,
        wrong=1,
    )
    row = row_of(measured, Peer([2.5, 3.5, 1.5], 0.5, 2))
    assert {name: row[name] for name in ("usual_gap_p50_s", "pause_p50_s", "pause_p95_s", "bare_stop_start_p50_s")} == {
        "usual_gap_p50_s": 0.3,
        "pause_p50_s": 0.6,
        "pause_p95_s": 2.2,
        "bare_stop_start_p50_s": 2.0,
    }
    assert (row["level_p50_s"], row["copied_mb"], row["follow_cores"], row["probe_max_ms"]) == (3.0, 1.0, 0.5, 40.0)
    assert (row["moves"], row["wrong"], row["usual_probe_p99_ms"]) == (3, 3, None)


def test_state_is_kept_where_a_node_would_keep_it_unless_the_user_names_providers() -> None:
    kinds, sizes = ("filter", "left-join"), (0, 1, 200, 2000)
    assert cases_of(kinds, (), sizes) == [
        Case("filter", "hdfs", 0),
        Case("left-join", "hdfs", 0),
        Case("left-join", "hdfs", 1),
        Case("left-join", "rocksdb", 200),
        Case("left-join", "rocksdb", 2000),
    ]
    both = cases_of(kinds, ("hdfs", "rocksdb"), sizes)
    assert [case.provider for case in both if case.kind == "left-join"] == [*["hdfs", "rocksdb"] * 3, "rocksdb"]
    assert [case for case in both if case.kind == "filter"] == [Case("filter", "hdfs", 0)]
