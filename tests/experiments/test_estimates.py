"""The comparison of estimates with measured rows: the ratios, their summary, and a query of the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.suite import estimates
from sbon_lab.suite.cases import chosen
from sbon_lab.suite.estimates import Judged, summary
from sbon_lab.suite.streams import write_streams


def test_ratios_say_by_what_factor_an_estimate_is_off() -> None:
    assert [
        Judged("q", "o", "join", estimated, measured).ratio for estimated, measured in ((30, 10), (10, 30), (0.2, 0), (0, 7))
    ] == [
        3.0,
        3.0,
        1.0,
        7.0,
    ]


def test_the_summary_has_each_kind_and_all() -> None:
    judged = [Judged("one", "b0", "filter", 10, 10), Judged("two", "b0", "filter", 60, 10), Judged("two", "o1", "join", 30, 10)]
    rows = {row["kind"]: row for row in summary(judged)}
    assert list(rows) == ["filter", "join", "all"]
    assert (rows["filter"]["median_ratio"], rows["filter"]["worst_ratio"], rows["filter"]["worst_query"]) == (3.5, 6.0, "two")
    assert (rows["all"]["operators"], rows["all"]["median_ratio"], rows["all"]["within_2"]) == (3, 3.0, 0.333)
    assert summary([]) == []


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_a_query_with_samples_is_estimated_better_than_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases, streams = chosen(["union_aggregated"]), write_streams(tmp_path)
    monkeypatch.setattr(estimates, "write_streams", lambda folder: streams)
    with_samples, without = (estimates.experiment(cases, sample_rows=rows)["rows"][-1] for rows in (1000, 0))
    assert with_samples["kind"] == without["kind"] == "all"
    assert with_samples["median_ratio"] < 1.2
    assert with_samples["worst_ratio"] < 2
    assert without["worst_ratio"] > 2
