"""Forms of output of commands: JSON, text and tables, in a pipe and on a terminal."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from sbon_cli.commands.queries.query import show_query_usage
from sbon_cli.terminal.output import headings, print_table
from sbon_protocol.api.queries import QueryInfo
from sbon_protocol.api.usage import LinkUsage, QueryUsage
from tests.cli.commands import FINISHED, frame, lines, on_a_terminal, run

LISTS = {("members",), ("members", "--near", "b"), ("stream", "list"), ("query", "list"), ("streams",), ("queries",)}
"""Commands that print a line for each; the others print one."""


READS = [
    (("members",), lambda x: [m["name"] for m in x] == ["a", "b"]),
    (("members", "--near", "b"), lambda x: x[1]["distance_ms"] == 100.0),
    (("rtt", "b"), lambda x: (x["measured_ms"], x["by"], x["estimate_source"]) == (91.25, "b", "measured")),
    (("rtt", "b", "--cached"), lambda x: (x["measured_ms"], x["estimate_source"]) == (None, "coordinates")),
    (("status",), lambda x: x["counters"] == {"bad-datagram": 3}),
    (("stream", "list"), lambda x: x[0]["entry"]["declaration"]["name"] == "flights"),
    (("stream", "show", "flights"), lambda x: x["sources"][0]["rows"] == 12),
    (("query", "list"), lambda x: x[0]["id"] == "q1"),
    (("streams",), lambda x: x[0]["sources"][0]["rows"] == 12),
    (("queries",), lambda x: len(x) == 1),
    (("usage", "q1"), lambda x: x["byte_ms"] == 50_000.0),
    (("query", "show", "q1"), lambda x: x["links"][0]["bytes"] == 4096),
    (("query", "usage", "q1"), lambda x: x["baseline_byte_ms"] == 200_000.0),
    (("explain", "--query", "q1"), lambda x: x["components"][1]["measured"]["selectivity"] == 0.25),
    (("explain", "SELECT 1"), lambda x: x["components"][1]["measured"]["selectivity"] is None),
]


@pytest.mark.parametrize("arguments, holds", READS)
def test_results_are_json_where_that_is_asked_for(
    api: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], holds: Any
) -> None:
    result = run(api, *arguments, "--json")
    assert result.exit_code == 0, result.output
    told = lines(result.stdout)
    assert holds(told if arguments in LISTS else told[0])
    assert result.stderr == ""
    assert run(api, *arguments, "--output", "json").stdout == result.stdout
    monkeypatch.setenv("SBON_OUTPUT", "json")
    assert run(api, *arguments).stdout == result.stdout


@pytest.mark.parametrize("arguments, holds", READS)
def test_a_description_is_a_table_in_a_pipe_as_on_a_terminal(
    api: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], holds: Any
) -> None:
    piped = run(api, *arguments)
    assert piped.exit_code == 0, piped.output
    assert "{" not in piped.stdout
    assert max(map(len, piped.stdout.splitlines())) < 400
    on_a_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "400")
    shown = run(api, *arguments).stdout
    assert sorted(piped.stdout.split()) == sorted(shown.split()) or arguments[0] == "explain"


def test_no_width_breaks_a_table_in_a_pipe(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    node.lost = [QueryInfo(id="st1", sql="", state="unreachable", reason=f"no {'answer ' * 8}", node="c")]
    heading, *rows = run(api, "query", "list").stdout.splitlines()
    assert (heading.split()[0], [row.split()[0] for row in rows]) == ("query", ["q1", "st1"])


def test_text_is_values_between_tabs_without_headings(api: str, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = run(api, "members", "--output", "text").stdout.splitlines()
    assert first.split("\t")[:5] == ["a", "alive", "a:7400", "a:7480", ""]
    assert second.split("\t")[4:6] == ["91.25", "measured"]
    node.script = [[frame(1, 1, 2), FINISHED], [frame(1, 1), FINISHED]]
    assert run(api, "submit", "select 1", "--output", "text").stdout == "1\tr1\n2\tr2\n"
    assert run(api, "submit", "select 1", "--output", "table").stdout.splitlines() == ["x  name", "1  r1"]
    monkeypatch.setenv("SBON_OUTPUT", "text")
    assert run(api, "stream", "list").stdout.startswith("flights\tts, delay\tts\t0\t")
    assert lines(run(api, "stream", "list", "--json").stdout)[0]["entry"]["version"] == 1


def test_forms_that_are_none_or_contradict_each_other_are_refused(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = run(api, "members", "--json", "--output", "table")
    assert (refused.exit_code, "--json and --output table contradict each other" in refused.stderr) == (2, True)
    monkeypatch.setenv("SBON_OUTPUT", "yaml")
    refused = run(api, "members")
    assert (refused.exit_code, "'yaml' is not one of 'table', 'json', 'text'" in refused.stderr) == (2, True)


def test_the_id_alone_is_printed_where_rows_are_not_followed(api: str, node: Any) -> None:
    assert run(api, "submit", "select 1", "--no-follow").stdout == "q1\n"
    assert lines(run(api, "submit", "select 1", "--no-follow", "--json").stdout)[0]["links"][0]["bytes"] == 4096


TABLES = [
    (("members",), ["node", "rtt ms", "91.2", "measured", "low-disk", "drained"]),
    (("members", "--within", "0.2s"), ["from here ms", "100.0", "estimated"]),
    (("rtt", "b", "a"), ["b to a", "by the coordinates", "98.5", "91.2", "1.5 s ago by b, the least of three pings", "used by"]),
    (("rtt", "b", "--cached"), ["98.5", "not lately"]),
    (("status",), ["cluster", "bad-datagram", "error 0.50", "drained     no"]),
    (("stream", "list"), ["flights", "ts, delay", "jfk@a"]),
    (("stream", "show", "flights"), ["timestamp", "jfk", "running", "12", "2.5", "late", "34"]),
    (("query", "list"), ["q1", "running", "SELECT * FROM flights"]),
    (("query", "show", "q1"), ["o1", "4.1 kB", "45.5", "0.5"]),
    (("query", "usage", "q1"), ["relaxation", "1.0 kB", "25.0% of sending all rows to the consumer"]),
    (("explain", "--query", "q1"), ["q1 running; by relaxation, rows to a", "└─ o1 at b ", " 0.250", "7 rows late", "25.0%"]),
    (("explain", "SELECT 1"), ["not submitted", "flights/jfk at b", "selectivity", "2.0 kB", "8.0 kB, 25.0%"]),
]


@pytest.mark.parametrize("arguments, words", TABLES)
def test_results_are_tables_on_a_terminal(
    api: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: list[str]
) -> None:
    on_a_terminal(monkeypatch)
    result = run(api, *arguments)
    assert result.exit_code == 0, result.output
    for word in words:
        assert word in result.stdout


def test_headings_are_not_broken_within_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table(headings(["penalty_mean_pct", "probes_mean", "queries"]), [(1.5, 2.5, 3)] * 2)
    words = " ".join(capsys.readouterr().out.split()).split()
    assert {"penalty", "mean", "pct", "probes", "queries"} <= set(words)


def test_a_bill_compares_sums_that_count_the_same_links(capsys: pytest.CaptureFixture[str]) -> None:
    """A link within a node costs nothing: its bytes are shown separately, and are in neither total."""
    line = partial(LinkUsage, latency_ms=50.0, byte_ms=1e6)
    inside = LinkUsage(stream="source/s@1/x", source_node="b", target_node="b", bytes=900_000, latency_ms=0.0, byte_ms=0.0)
    links = (inside, line(stream="q1.b0", source_node="b", target_node="a", bytes=20_000))
    whole = (line(stream="source/s@1/x", source_node="b", target_node="a", bytes=900_000),)
    show_query_usage(QueryUsage(query="q1", strategy="hybrid", links=links, baseline=whole, byte_ms=1e6, baseline_byte_ms=45e6))
    told = capsys.readouterr().out
    totals = [" ".join(row.split()) for row in told.splitlines() if row.startswith("total")]
    assert totals == ["total between nodes 20.0 kB - 1.0", "total between nodes 900.0 kB - 45.0"]
    assert "and 900.0 kB within a node, on 1 link: free" in told
    assert "network usage: 2.2% of sending all rows to the consumer" in told
