"""A query's cost on the wire, against the exact optimum for the bytes sent."""

from __future__ import annotations

import pytest

from sbon.local.wide_area import cities
from sbon_lab.bench.usage import Area, Run, run_query
from sbon_lab.experiments.live.placements import judged, summary
from sbon_lab.suite.cases import chosen
from sbon_lab.suite.streams import write_streams

AREA = Area(*cities())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Everything is shipped to the consumer."""
    streams = write_streams(tmp_path_factory.mktemp("input"))
    (case,) = chosen(["filter_late"])
    return run_query(AREA, case, streams, decompose="never", strategy="consumer")


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_measured_and_optimum_are_of_the_bytes_that_flowed(ran: Run) -> None:
    found, latency = judged(ran.info, AREA), AREA.one_way_ms
    assert found["measured_byte_ms"] == round(ran.byte_ms(AREA)) > 0
    assert (found["nodes"], found["operators"]) == (1, 3)
    sizes = {link.stream: link.bytes for link in ran.info.links}
    ends = {link.target: link for link in ran.info.links if link.target in sizes}
    least = 0.0
    for operator, link in ends.items():
        costs = (
            link.bytes * latency(link.source_node, node) + sizes[operator] * latency(node, ran.info.consumer)
            for node in AREA.names
        )
        least += min(costs)
    assert found["optimum_byte_ms"] == round(least)
    assert found["ratio"] == pytest.approx(ran.byte_ms(AREA) / least, abs=1e-4)
    assert found["ratio"] > 5


def test_delay_is_of_the_way_the_rows_took(ran: Run) -> None:
    """All operators are where the consumer is: the longest way is that of the farthest source."""
    sources = [planned.source.node for planned in ran.info.plan.sources] if ran.info.plan else []
    farthest_ms = max(AREA.one_way_ms(source, ran.info.consumer) for source in sources)
    assert judged(ran.info, AREA)["true_delay_ms"] == pytest.approx(farthest_ms, abs=0.1)


def test_strategies_are_compared_on_the_queries_that_all_ran() -> None:
    def row(strategy: str, query: str, measured: int, failed: str = "") -> dict[str, object]:
        figures = {"measured_byte_ms": measured, "optimum_byte_ms": 100, "predicted_ratio": measured / 100, "true_delay_ms": 5.0}
        return {"strategy": strategy, "query": query, "failed": failed, "wrong": 0, "probes": 3, **figures}

    rows = [
        row("good", "one", 110),
        row("good", "two", 500),
        row("bad", "one", 200),
        row("bad", "two", 0, "no-capacity"),
        row("never", "one", 0, "away"),
    ]
    good, bad, never = summary(rows)
    assert (good["queries"], good["of_optimum"], good["predicted_of_true"]) == (2, 1.1, 1.1)
    assert (bad["queries"], bad["failed"], bad["of_optimum"], bad["predicted_of_true"]) == (1, 1, 2.0, 2.0)
    assert (never["queries"], never["of_optimum"], never["predicted_of_true"], never["delay_ms"]) == (0, None, None, None)
