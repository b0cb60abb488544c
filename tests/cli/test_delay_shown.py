"""``sbon query show`` prints the measured delay with its error, beside the query's bound."""

from __future__ import annotations

import pytest

from sbon_cli.commands.queries.query import show_query
from sbon_protocol.api.delivery import SinkDelay
from sbon_protocol.api.queries import QueryInfo

KNOWN = SinkDelay(frames=9, p50_ms=12.34, p95_ms=45.0, error_ms=3.21)


@pytest.mark.parametrize(
    "delay, bound_ms, line",
    [
        (
            KNOWN,
            None,
            "sink, any wait in the source's history included: p50 12.3 ms, p95 45.0 ms, ± 3.2 ms, over 9 frames (see streams.",
        ),
        (KNOWN, 80.0, "(see streams.delay_window_s); --max-delay 80 ms bounds the part of the network\n"),
        (SinkDelay(frames=9, p50_ms=522_715.8, p95_ms=1e4, error_ms=9_999.9), None, "p50 9 min, p95 10 s, ± 9,999.9 ms, over"),
        (SinkDelay(frames=1, p50_ms=1.0, p95_ms=2.0), None, "p95 2.0 ms, of unknown error, over 1 frame (see "),
    ],
)
def test_the_delay_is_shown_with_its_error(
    capsys: pytest.CaptureFixture[str], delay: SinkDelay, bound_ms: float | None, line: str
) -> None:
    show_query(QueryInfo(id="q", sql="SELECT 1", state="running", delay=delay, max_delay_ms=bound_ms))
    assert line in capsys.readouterr().out


@pytest.mark.parametrize("delay", [None, SinkDelay(undated=3)])
def test_no_delay_is_shown_before_it_is_known(capsys: pytest.CaptureFixture[str], delay: SinkDelay | None) -> None:
    show_query(QueryInfo(id="q", sql="SELECT 1", state="running", delay=delay))
    assert "delay" not in capsys.readouterr().out
