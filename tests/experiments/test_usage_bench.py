"""The bill of the suite's queries in virtual time: what links carry, what shipping whole would, and rows that are right."""

from __future__ import annotations

import pytest

from sbon.local.wide_area import cities
from sbon_lab.bench.usage import Area, run, summary
from sbon_protocol.errors import SbonError

AREA = Area(*cities())


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_a_divided_aggregate_costs_less_than_one_in_one_piece_and_that_less_than_shipping_whole() -> None:
    notified: list[str] = []
    result = run(AREA, ["window_carriers"], notify=notified.append)
    assert notified == ["window_carriers"]
    assert result["name"] == "usage"
    (row,) = result["rows"]
    assert (row["query"], row["operators"], row["wrong"], row["failed"]) == ("window_carriers", 4, 0, "")
    assert row["rows"] > 0
    assert 0 < row["decomposed_byte_ms"] < row["byte_ms"] < row["baseline_byte_ms"]
    assert row["ratio"] == pytest.approx(row["byte_ms"] / row["baseline_byte_ms"], abs=1e-4)


def test_the_median_counts_what_has_figures() -> None:
    figures = ((0.1, None, 0, ""), (0.3, 0.2, 2, ""), (None, None, None, "no"))
    rows = [dict(zip(("ratio", "decomposed_ratio", "wrong", "failed"), one, strict=True)) for one in figures]
    assert summary(rows).splitlines() == [
        "median of 2 queries: 20.0% of shipping every stream whole",
        "median of 1 with aggregates that divide: 30.0% in one piece, 20.0% divided",
        "2 wrong rows; 1 queries without figures",
    ]
    assert summary(rows[2:]).startswith("median of 0 queries: - of")


def test_a_query_the_suite_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(SbonError, match="no query 'nexmark_q99'"):
        run(AREA, ["nexmark_q0", "nexmark_q99"])
