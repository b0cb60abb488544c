"""The cut of queries into stages: a file of queries with fragments and the inputs of their views."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sbon_node.model.schema import parse_schema
from sbon_node.planning.sql.checks.allowlist import check_fragment
from sbon_node.planning.sql.relations.logical import Scan
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.cut import Stage, cut
from sbon_node.planning.sql.stages.fragments import fragment_of
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.errors import SbonError

PLANS = Path(__file__).parent / "plans.sql"
BLOCK = re.compile(r"^-- query\n(?P<sql>.*)\n(?P<plan>(?:.*\n)*?)--$", re.MULTILINE)
CASES = [(match["sql"], match["plan"].splitlines()) for match in BLOCK.finditer(PLANS.read_text(encoding="utf-8"))]


def entry(name: str, schema: str) -> CatalogEntry:
    declaration = StreamDeclaration(name=name, schema=parse_schema(schema), event_time="ts")
    return CatalogEntry(declaration=declaration, sources=(SourceDeclaration(stream=name, name="s", node="n", connector="file"),))


CATALOG = {
    "flights": entry("flights", "ts timestamp, carrier string, origin string, dep_delay double, distance int"),
    "weather": entry("weather", "ts timestamp, origin string, temp double, wind double"),
    "bid": entry("bid", "ts timestamp, auction bigint, bidder bigint, price bigint"),
    "auction": entry("auction", "ts timestamp, id bigint, seller bigint, category int"),
    "person": entry("person", "ts timestamp, id bigint, name string, city string"),
}


def planned(sql: str) -> list[str]:
    """A line for each operator, those that feed others first: its fragment, and of each view its event time and streams."""
    lines: list[str] = []
    numbers: dict[Stage, int] = {}

    def write(stage: Stage) -> str:
        if stage not in numbers:
            fed = []
            for number, view in enumerate(stage.views):
                names = [
                    feed.origin.entry.declaration.name if isinstance(feed.origin, Scan) else write(feed.origin)
                    for feed in view.feeds
                ]
                lags = {feed.lag_ms for feed in view.feeds}
                time = f" by {view.event_time} less {'/'.join(map(str, sorted(lags)))} ms" if view.event_time else ""
                fed.append(f"in{number}: {', '.join(names)}{time}")
            fragment = fragment_of(stage.relation)
            check_fragment(fragment, len(stage.views))
            numbers[stage] = len(numbers)
            lines.append(f"o{numbers[stage]} = {fragment} [{'; '.join(fed)}]")
        return f"o{numbers[stage]}"

    for stage in cut(push_down(read_query(sql, CATALOG, QuerySettings())), sql):
        write(stage)
    return lines


@pytest.mark.parametrize("sql, plan", CASES, ids=[sql[:70] for sql, _ in CASES])
def test_a_query_is_cut_into_stages(sql: str, plan: list[str]) -> None:
    assert planned(sql) == plan


def test_the_file_is_read() -> None:
    assert len(CASES) >= 20


UNENDING = [
    ("SELECT date_trunc('hour', w.ts) AS h, count(*) AS n FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND w.ts = f.ts GROUP BY date_trunc('hour', w.ts)", "aggregate-without-window"),  # noqa: E501
    ("SELECT o.ts FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND w.ts = f.ts LEFT JOIN weather o ON o.origin = w.origin AND o.ts = w.ts", "join-without-bound"),  # noqa: E501
    ("SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin", "join-without-bound"),
    ("SELECT f.carrier FROM flights f JOIN weather w ON f.origin = w.origin AND w.ts > f.ts", "join-without-bound"),
    ("SELECT f.carrier FROM flights f JOIN weather w ON w.ts BETWEEN f.ts - INTERVAL 1 HOUR AND f.ts", "join-without-equality"),
    ("SELECT f.carrier FROM flights f CROSS JOIN weather w", "join-without-equality"),
    ("SELECT carrier, count(*) AS n FROM flights GROUP BY carrier", "aggregate-without-window"),
    ("SELECT count(*) AS n FROM flights GROUP BY window(expires, '1 hour')", "unknown-column"),
    ("SELECT max(n) AS m FROM (SELECT carrier, count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), carrier) GROUP BY carrier", "aggregate-without-window"),  # noqa: E501
    ("SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 month')", "bad-window"),
    ("SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour', '2 hours')", "bad-window"),
    ("SELECT count(*) AS n FROM flights GROUP BY window(ts, '1 hour'), window(ts, '2 hours')", "unsupported-window"),
    ("SELECT carrier, count(*) AS n FROM flights GROUP BY window(ts, '1 hour')", "not-grouped"),
    ("SELECT count(DISTINCT carrier) AS n FROM flights GROUP BY window(ts, '1 hour')", "unsupported-aggregate"),
    ("SELECT collect_list(carrier) AS n FROM flights GROUP BY window(ts, '1 hour')", "unsupported-aggregate"),
    ("SELECT sum(count(*)) AS n FROM flights GROUP BY window(ts, '1 hour')", "unsupported-aggregate"),
    ("SELECT carrier FROM flights WHERE origin NOT IN (SELECT origin FROM weather)", "unsupported-subquery"),
    ("SELECT ts FROM flights UNION ALL SELECT ts, origin FROM weather", "bad-union"),
    ("SELECT ts FROM flights UNION SELECT ts FROM weather", "unsupported-union"),
    ("SELECT a.ts FROM flights a JOIN weather a ON a.ts = a.ts", "duplicate-alias"),
    ("SELECT origin FROM flights f JOIN weather w ON f.origin = w.origin AND f.ts = w.ts", "ambiguous-column"),
    ("WITH RECURSIVE t AS (SELECT ts FROM flights) SELECT ts FROM t", "unsupported-cte"),
    ("SELECT f.ts FROM flights f NATURAL JOIN weather w", "unsupported-join"),
    ("SELECT f.ts FROM flights f LEFT ANTI JOIN weather w ON f.origin = w.origin", "unsupported-join"),
]  # fmt: skip


@pytest.mark.parametrize("sql, code", UNENDING, ids=[sql[:70] for sql, _ in UNENDING])
def test_endless_and_senseless_queries_are_refused_with_their_position(sql: str, code: str) -> None:
    with pytest.raises(SbonError) as refused:
        planned(sql)
    assert refused.value.code == code
    assert re.fullmatch(r"line \d+, column \d+", refused.value.where)
    assert refused.value.hint
