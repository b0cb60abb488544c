"""The cost of registers (``sbon bench control``), for few queries."""

from __future__ import annotations

import pytest

from sbon.local.wide_area import cities
from sbon_lab.bench import control


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize(
    "queries, rest_s",
    [(3, 60.0), pytest.param(5, control.REST_S, marks=pytest.mark.only_in_test_all("experiments of today's size"))],
)
def test_registers_cost_a_submission_round_trips_and_little_at_rest(
    monkeypatch: pytest.MonkeyPatch, queries: int, rest_s: float
) -> None:
    """Hosts ask once a minute whether their queries live."""
    monkeypatch.setattr(control, "REST_S", rest_s)
    plain, named = control.run(control.Area(*cities()), queries=queries)["rows"]
    assert (plain["registers"], named["registers"]) == ("records", "records and names")
    for row in (plain, named):
        # Of few queries, the times of the simulated engine's start count for more than the registers.
        assert row["submit_p50_ms"] <= 1.3 * row["submit_limit_ms"]
    assert max(plain["more_bytes_s"], named["more_bytes_s"]) <= 100
