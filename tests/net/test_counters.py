"""Counted events and their log lines: refusals are warnings, ordinary events are not, and both are limited."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from sbon_node.net.counters import PERIOD_S, WARNINGS_IN_A_PERIOD, Counters


@pytest.mark.parametrize("method, level", [("refuse", "warning"), ("note", "info")])
def test_events_are_counted_and_logged_at_their_level_a_few_times_in_a_period(method: str, level: str) -> None:
    now_s = 0.0
    counters = Counters(lambda: now_s)
    with capture_logs() as lines:
        for _ in range(20):
            getattr(counters, method)("description-missing", node="n" * 1000)
        now_s = PERIOD_S + 1.0
        getattr(counters, method)("description-missing", node="b")
    assert [line["log_level"] for line in lines] == [level] * (WARNINGS_IN_A_PERIOD + 1)
    assert (len(lines[0]["node"]), lines[-1]["total"], counters.snapshot()) == (300, 21, {"description-missing": 21})
