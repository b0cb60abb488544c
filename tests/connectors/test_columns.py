"""Values of text columns: a value converts the same alone and beside others that need more work."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sbon_node.connectors.formats.columns import text_converter

TIMES = pa.timestamp("us", "UTC")
KINDS = (pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.decimal128(10, 2), TIMES)
VALUES = (
    "",
    "  ",
    "1",
    " 1 ",
    "-0.5",
    "nan",
    "true",
    "2020-01-01",
    "2020-01-01 ",
    "2020-01-01 10:00:00.123456",
    "2020-01-01T10:00:00Z",
    "2020-01-01T10:00:00+01:00",
    "2020-01-01T10:00:00-0530",
)


def converted(kind: pa.DataType, *texts: str) -> list[Any] | None:
    try:
        return [value.as_py() for value in text_converter(kind, "")(pa.array([text.encode() for text in texts], pa.binary()))]
    except (pa.ArrowException, ValueError, TypeError):
        return None


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_value_converts_the_same_beside_any_other(kind: pa.DataType) -> None:
    alone = {text: converted(kind, text) for text in VALUES}
    assert alone[""] == alone["  "] == [None]
    for one in VALUES:
        for other in VALUES:
            left, right = alone[one], alone[other]
            both = None if left is None or right is None else left + right
            assert repr(converted(kind, one, other)) == repr(both), (one, other)


def test_times_with_and_without_zone_and_space() -> None:
    texts = ("2020-01-01T10:00:00+01:00", " 2020-01-01 09:00", "2020-01-01T09:00:00Z", "")
    moments = converted(TIMES, *texts)
    assert moments is not None
    assert [None if moment is None else moment.isoformat() for moment in moments] == [*["2020-01-01T09:00:00+00:00"] * 3, None]
