"""Moving operators: their rows, and the comparison with DuckDB."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sbon_node.connectors.formats.frames import encode
from sbon_node.experiments.bench.migration.kinds import KINDS, Feed, wrong_rows

FEED = Feed(30)


def output(number: int) -> bytes:
    """Return the filter's result of one frame, ten rows."""
    table = FEED.table(number, 0)
    kept = table.filter(pa.array([n % 3 == 0 for n in table["n"].to_pylist()]))
    return encode(kept.combine_chunks().to_batches()[0])


@pytest.mark.parametrize(
    ("numbers", "wrong"), [((0, 1, 2, 3), (0, 0)), ((0, 1, 3), (10, 0)), ((0, 1, 2, 2, 3), (0, 10)), ((0, 3, 3), (20, 10))]
)
def test_missing_and_repeated_rows_are_counted(numbers: tuple[int, ...], wrong: tuple[int, int]) -> None:
    assert wrong_rows(KINDS["filter"], FEED, 4, [output(number) for number in numbers]) == wrong


def test_a_frame_is_found_by_a_watermark_that_it_reached() -> None:
    marks = [FEED.watermark_ms(number) for number in range(4)]
    assert [FEED.frame_with(mark) for mark in marks] == [0, 1, 2, 3]
    assert [FEED.frame_with(mark + 1) for mark in marks] == [1, 2, 3, 4]
    assert FEED.frame_with(marks[0] - 10**9) == 0
