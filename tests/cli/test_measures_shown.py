"""``sbon query show`` prints the measures of running operators."""

from __future__ import annotations

import pytest

from sbon_cli.commands.queries.query import show_query
from sbon_protocol.api.measures import InputMeasures, OperatorMeasures
from sbon_protocol.api.queries import LinkInfo, OperatorInfo, QueryInfo


def test_measures_of_running_operators_are_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    measures = OperatorMeasures(
        inputs=(
            InputMeasures(stream="s1", rows_s=100.0, bytes_s=6_000.0),
            InputMeasures(stream="s2", rows_s=50.0, bytes_s=4_000.0),
        ),
        rows_out_s=30.0,
        bytes_out_s=900.0,
        selectivity=0.2143,
        batch_ms=420.0,
        row_ms=2.8,
        cpu_row_ms=0.7,
        state_bytes=3_000_000,
    )
    link = LinkInfo(
        stream="s1", source_node="a", target="o1", target_node="b", rows=9, bytes=90, latency_ms=1.0, bytes_behind=7_000
    )
    operators = (
        OperatorInfo(id="o1", node="b", fragment="SELECT 1", state="running", measures=measures),
        OperatorInfo(id="o2", node="b", fragment="SELECT 2", state="running", measures=OperatorMeasures()),
    )
    show_query(QueryInfo(id="q", sql="SELECT 1", state="running", operators=operators, links=(link,)))
    shown = capsys.readouterr().out
    table = shown[shown.index("measured") :]
    (line,) = [line for line in table.splitlines() if line.split()[:1] == ["o1"]][:1]
    assert line.split() == ["o1", "150.0", "30.0", "10.0", "kB", "900", "B", "0.214", "2.8", "0.7", "420.0", "3.0", "MB"]
    assert "7.0 kB" in shown


def test_no_table_without_measures(capsys: pytest.CaptureFixture[str]) -> None:
    operator = OperatorInfo(id="o1", node="b", fragment="SELECT 1", state="running", measures=OperatorMeasures())
    show_query(QueryInfo(id="q", sql="SELECT 1", state="running", operators=(operator,)))
    assert "measured" not in capsys.readouterr().out
