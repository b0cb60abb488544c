"""Figures of ``sbon bench durability``: beside local ones of the same run, from what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from sbon_lab.migration.durabilities import Measured, Plan, row_of, sent_bytes

PLAN = Plan(kinds=("filter",), durabilities=("local", "replicated"), turns=2, seconds=20.0, rows=1000, rtt_ms=30.0)
FOUND = {
    ("filter", "local"): Measured([0.1, 0.2, 0.3], [1000.0, 2000.0], sent_bytes=500.0, cpu_s=0.5, rows=100),
    ("filter", "replicated"): Measured([0.15, 0.25, 0.45], [900.0, 1200.0], sent_bytes=900.0, cpu_s=1.0, rows=100, wrong=2),
}


def test_a_row_compares_with_the_local_query_of_the_same_run() -> None:
    row = row_of(PLAN, "filter", "replicated", FOUND)
    assert (row["p50_ms"], row["beyond_local_ms"]) == (250.0, 50.0)
    assert (row["rows_s"], row["of_local"]) == (1050, 0.7)
    assert (row["sent_bytes_row"], row["cpu_us_row"], row["wrong"]) == (9.0, 10_000.0, 2)


def test_without_a_local_query_nothing_is_compared() -> None:
    row = row_of(PLAN, "filter", "replicated", {("filter", "replicated"): FOUND["filter", "replicated"]})
    assert (row["beyond_local_ms"], row["of_local"], row["p95_ms"]) == (None, None, pytest.approx(430.0))


@pytest.mark.parametrize(
    "metrics, sent",
    [
        ('# TYPE sbon_frame_bytes counter\nsbon_frame_bytes_total{direction="sent",kind="frame"} 7\n', 7.0),
        ('# TYPE sbon_frame_bytes counter\nsbon_frame_bytes_total{direction="received",kind="frame"} 7\n', 0.0),
        ('# TYPE sbon_datagram_bytes counter\nsbon_datagram_bytes_total{direction="sent",kind="ping"} 7\n', 0.0),
    ],
)
def test_only_bytes_that_were_sent_over_connections_count(metrics: str, sent: Any) -> None:
    assert sent_bytes(metrics) == sent
