"""The bill of the suite's queries in virtual time: what links carry, what shipping whole would, and rows that are right."""

from __future__ import annotations

import pytest

from sbon_cli.cities import cities
from sbon_node.errors import SbonError
from sbon_node.experiments.bill_bench import Area, run, summary

AREA = Area(*cities())


def test_a_filter_costs_less_than_shipping_whole_and_its_rows_are_right() -> None:
    told: list[str] = []
    result = run(AREA, ["filter_late"], told=told.append)
    assert told == ["filter_late"]
    assert result["name"] == "bill"
    (row,) = result["rows"]
    assert (row["query"], row["operators"], row["wrong"], row["failed"]) == ("filter_late", 3, 0, "")
    assert row["rows"] > 0
    assert 0 < row["byte_ms"] < row["whole_byte_ms"]
    assert row["ratio"] == pytest.approx(row["byte_ms"] / row["whole_byte_ms"], abs=1e-4)


def test_the_median_counts_what_has_figures() -> None:
    rows = [
        {"ratio": ratio, "wrong": wrong, "failed": why} for ratio, wrong, why in ((0.1, 0, ""), (0.3, 2, ""), (None, None, "no"))
    ]
    assert summary(rows) == "median of 2 queries: 20.0% of shipping every stream whole; 2 wrong rows, 1 queries failed"
    assert summary(rows[2:]).startswith("median of 0 queries: no figures")


def test_a_query_the_suite_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(SbonError, match="no query 'nexmark_q99'"):
        run(AREA, ["nexmark_q0", "nexmark_q99"])
