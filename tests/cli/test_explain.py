"""``sbon explain``: what is asked of the node, and the tree of each query of a file, planned by the real planner."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_cli.commands.queries.explain import figure_text, show_explanation, tree
from sbon_node.model.schema import parse_schema
from sbon_node.planning.sql.planner import plan_query
from sbon_node.planning.sql.syntax.dialect import parse
from sbon_node.queries.explaining.plan_explanation import Latency, explained
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column, Schema
from sbon_protocol.api.explanations import Explanation
from sbon_protocol.api.operators import OperatorStats
from sbon_protocol.api.queries import OperatorInfo, QuerySpec
from sbon_protocol.api.streams import SourceInfo
from sbon_protocol.api.usage import LinkUsage, QueryUsage
from sbon_protocol.errors import SbonError
from tests.cli.commands import run

BLOCK = re.compile(r"^-- (?P<state>planned|running)\n(?P<sql>.*)\n(?P<tree>(?:.*\n)*?)--$", re.MULTILINE)
TREES = [
    (match["state"], match["sql"], match["tree"].splitlines())
    for match in BLOCK.finditer((Path(__file__).parent / "trees.txt").read_text(encoding="utf-8"))
]
WIDTH = 80


def entry(name: str, schema: str, *sites: str) -> CatalogEntry:
    declaration = StreamDeclaration(name=name, schema=parse_schema(schema), event_time="ts")
    sources = tuple(
        SourceDeclaration(stream=name, name=site.partition("@")[0], node=site.rpartition("@")[2], connector="file", rows_s=600)
        for site in sites
    )
    return CatalogEntry(declaration=declaration, sources=sources)


CATALOG = {
    "flights": entry("flights", "ts timestamp, carrier string, origin string, dep_delay double", "ewr@new-york", "london"),
    "weather": entry("weather", "ts timestamp, origin string, temp double", "a-source-of-a-long-name@frankfurt"),
}


async def analysed(fragment: str, inputs: tuple[Schema, ...]) -> Schema:
    """The names as they stand in the fragment; types for the estimates alone."""
    names = parse(fragment)[0].named_selects
    return tuple(Column(name, "timestamp" if name in ("ts", "e") else "double") for name in names)


def forty(a: str, b: str) -> float | None:
    return 40.0


async def explanation(sql: str, *, runs: bool, latency_ms: Latency = forty) -> Explanation:
    """Every operator at singapore; a running one has let a quarter of its rows through."""
    plan = await plan_query(sql, CATALOG, "q7", analysed)
    stats = OperatorStats(rows_in=400, rows_out=100, bytes_out=1600, rows_out_s=12.5, bytes_out_s=200.0)
    operators = {
        one.id: OperatorInfo(id=one.id, node="singapore", fragment=one.fragment, state="running", stats=stats)
        for one in plan.operators
    }
    sources = {
        one.source.id: SourceInfo(source=one.source, state="running", rows=400, bytes=12_000, rows_s=50.0, bytes_s=1500.0, late=3)
        for one in plan.sources
    }
    lines = [_line(one.source.id, one.source.node, latency_ms(one.source.node, "singapore")) for one in plan.sources]
    total = sum(line.byte_ms or 0.0 for line in lines)
    usage = QueryUsage(
        query="q7", strategy="consumer", links=tuple(lines), baseline=tuple(lines), byte_ms=total, baseline_byte_ms=total
    )
    return explained(
        plan,
        sql=sql,
        strategy="consumer",
        consumer="singapore",
        hosts=dict.fromkeys(operators, "singapore"),
        latency_ms=latency_ms,
        sources=sources if runs else {},
        operators=operators if runs else {},
        query="q7" if runs else "",
        state="running" if runs else "planned",
        usage=usage if runs else None,
        life_ms=10_000,
    )


def _line(stream: str, source: str, one_way_ms: float | None) -> LinkUsage:
    byte_ms = None if one_way_ms is None else 12_000 * one_way_ms
    return LinkUsage(
        stream=stream, source_node=source, target_node="singapore", bytes=12_000, latency_ms=one_way_ms, byte_ms=byte_ms
    )


def test_the_file_of_trees_is_read() -> None:
    assert len(TREES) == (Path(__file__).parent / "trees.txt").read_text(encoding="utf-8").count("\n--\n") == 7


@pytest.mark.parametrize("state, sql, lines", TREES, ids=[sql[:60] for _, sql, _ in TREES])
async def test_the_tree(state: str, sql: str, lines: list[str]) -> None:
    found = await explanation(sql, runs=state == "running")
    drawn = tree({part.id: part for part in found.components}, found.components[0].id, WIDTH)
    assert [line.rstrip() for line in drawn] == lines
    assert max(map(len, drawn)) < WIDTH


@pytest.mark.parametrize("state, sql", [case[:2] for case in TREES], ids=[sql[:60] for _, sql, _ in TREES])
async def test_all_of_it_but_the_users_own_sql_fits_a_terminal_of_eighty_columns(
    state: str, sql: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    found = await explanation(sql, runs=state == "running")
    show_explanation(found)
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in shown if len(line) > WIDTH and line != sql] == []
    text = " ".join(" ".join(shown).split())
    for part in found.components:
        assert part.fragment in text
    assert found.usage is not None
    assert found.baseline_usage is not None
    assert f"{found.usage / found.baseline_usage:.1%}" in text
    assert ("network usage, measured" in text) == (state == "running")


async def test_usage_is_rate_times_latency_over_links_between_nodes() -> None:
    sql = "SELECT carrier FROM flights WHERE origin = 'JFK'"
    planned, running = await explanation(sql, runs=False), await explanation(sql, runs=True)
    assert planned.usage == planned.baseline_usage == pytest.approx(2 * 600 * 100 * 0.040)
    assert (planned.measured_usage, planned.measured_baseline_usage) == (None, None)
    assert running.measured_usage == running.measured_baseline_usage == pytest.approx(2 * 12_000 * 40.0 / 10_000)
    assert [(link.latency_ms, link.usage) for link in running.links if link.stream.startswith("q7")] == [(0.0, 0.0)] * 2


async def test_an_unknown_latency_is_not_taken_for_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """London, with one of two sources, has no coordinate yet."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    found = await explanation(
        "SELECT carrier FROM flights WHERE origin = 'JFK'",
        runs=True,
        latency_ms=lambda a, b: None if "london" in (a, b) else 40.0,
    )
    (link,) = (link for link in found.links if link.source_node == "london")
    assert (link.latency_ms, link.usage, link.measured_usage) == (None, None, None)
    assert (found.usage, found.baseline_usage, found.measured_usage, found.measured_baseline_usage) == (None,) * 4
    show_explanation(found)
    text = capsys.readouterr().out
    (cells,) = (line.split() for line in text.splitlines() if line.startswith("flights/london "))
    assert (cells[2], cells[-1]) == ("?", "?")
    assert "network usage, predicted: ?; the latency of some links is not known" in text


def test_the_node_gets_text_files_and_standard_input(api: str, node: Any, tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text("SELECT 2\n")
    run(api, "explain", "SELECT 1", "--strategy", "producer", "--consumer", "b")
    run(api, "explain", f"@{file}")
    run(api, "explain", "-", stdin="SELECT 3")
    assert node.asked == [
        QuerySpec(sql="SELECT 1", strategy="producer", consumer="b"),
        QuerySpec(sql="SELECT 2\n"),
        QuerySpec(sql="SELECT 3"),
    ]
    assert node.submitted == []


def test_a_refusal_reads_like_that_of_a_submission(api: str, node: Any) -> None:
    node.refuse_submit = SbonError("bad-sql", "no column x: x + 1", where="line 1, column 8", hint="columns: ts")
    explained, submitted = run(api, "explain", "SELECT x + 1"), run(api, "submit", "-q", "--no-follow", "SELECT x + 1")
    assert (explained.exit_code, explained.stdout) == (1, "")
    assert explained.stderr == submitted.stderr
    assert explained.stderr.splitlines() == ["error: line 1, column 8: no column x: x + 1", "  hint: columns: ts"]
    assert run(api, "explain", "--query", "q2").exit_code == 1


def test_a_name_in_place_of_sql_is_that_of_a_query(api: str, node: Any) -> None:
    by_name = run(api, "explain", "q1")
    assert (by_name.exit_code, by_name.stdout) == (0, run(api, "explain", "--query", "q1").stdout)
    assert by_name.stdout == run(api, "explain", "plan", "q1").stdout
    assert node.asked == []
    unknown = run(api, "explain", "q2")
    assert (unknown.exit_code, "there is no query 'q2'" in unknown.stderr) == (1, True)
    both = run(api, "explain", "q1", "--query", "q1")
    assert (both.exit_code, "the name of a query" in both.stderr) == (2, True)
    for shown in (run(api, "explain", "--help").stdout, run(api, "explain", "plan", "--help").stdout):
        assert "--query" in shown
        assert "name of a query" in shown


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "-"), (0.0, "0"), (1e-9, "1e-09"), (0.001, "0.00100"), (0.25, "0.250"), (1.0, "1.00"), (99.96, "100"),
        (999.4, "999"), (999.5, "1.00k"), (12_345.0, "12.3k"), (1e6, "1.00M"), (1e12, "1.00T"), (1e20, "1e+20"),
    ],
)  # fmt: skip
def test_figures_have_three_digits_and_fit_their_column(value: float | None, text: str) -> None:
    assert figure_text(value) == text
    assert len(text) <= 7


async def test_a_source_that_is_a_result_names_its_query(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = SourceDeclaration(stream="late", name="query", node="london", connector="query", options={"query": "late-7f3kqz"})
    declaration = StreamDeclaration(name="late", schema=parse_schema("ts timestamp, carrier string"), event_time="ts")
    monkeypatch.setitem(CATALOG, "late", CatalogEntry(declaration=declaration, sources=(source,)))
    show_explanation(await explanation("SELECT carrier FROM late WHERE carrier = 'UA'", runs=True))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (at,) = (number for number, line in enumerate(lines) if "late/query at london" in line)
    assert lines[at + 1] == "the result of late"


async def test_a_rate_that_is_not_known_is_said_to_be_assumed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = entry("late", "ts timestamp, carrier string", "london")
    unknown = msgspec.structs.replace(known.sources[0], name="second", rows_s=None)
    monkeypatch.setitem(CATALOG, "late", msgspec.structs.replace(known, sources=(*known.sources, unknown)))
    shown = await explanation("SELECT carrier FROM late WHERE carrier = 'UA'", runs=True)
    sources = {one.id: one.assumed for one in shown.components if one.kind == "source"}
    assert sources == {known.sources[0].id: False, unknown.id: True}
    show_explanation(shown)
    lines = [line.strip(" │") for line in capsys.readouterr().out.splitlines()]
    (at,) = (number for number, line in enumerate(lines) if "late/second at london" in line)
    assert lines[at + 1] == "its rate is not known, but assumed"
    assert lines.count(lines[at + 1]) == 1
