"""``sbon query show`` says where rows go by themselves, and how that goes."""

from __future__ import annotations

import pytest

from sbon_cli.commands.queries.query import show_query
from sbon_node.model.shown import shown_sink
from sbon_protocol.api.delivery import SinkReport
from sbon_protocol.api.queries import QueryInfo, SinkSpec


def test_a_sink_is_shown_with_its_counts_and_without_its_password(capsys: pytest.CaptureFixture[str]) -> None:
    sink = SinkSpec(kind="postgres", options={"url": "postgres://me:s3cret@db/x", "table": "t"})
    delivery = SinkReport(state="paused: db: no answer", rows=1234, refused=2, dead_letters="/d/q.ndjson", retries=5)
    show_query(QueryInfo(id="q", sql="SELECT 1", state="running", sink=shown_sink(sink), delivery=delivery))
    shown = capsys.readouterr().out
    assert "to postgres postgres://me:(hidden)@db/x t\n" in shown
    assert "paused: db: no answer; 1,234 rows delivered, 2 refused, kept in /d/q.ndjson, 5 retries\n" in shown


def test_a_follower_has_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    show_query(QueryInfo(id="q", sql="SELECT 1", state="running"))
    assert "delivered" not in capsys.readouterr().out
