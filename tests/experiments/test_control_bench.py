"""The cost of registers (``sbon bench control``), for few queries."""

from __future__ import annotations

from sbon.local.wide_area import cities
from sbon_node.experiments.bench.control import Area, run


def test_registers_cost_a_submission_round_trips_and_little_at_rest() -> None:
    plain, named = run(Area(*cities()), queries=5)["rows"]
    assert (plain["registers"], named["registers"]) == ("records", "records and names")
    for row in (plain, named):
        # Of few queries, the times of the simulated engine's start count for more than the registers.
        assert row["submit_p50_ms"] <= 1.3 * row["submit_limit_ms"]
    assert max(plain["more_bytes_s"], named["more_bytes_s"]) <= 100
