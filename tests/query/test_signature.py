"""Which queries are recognised as equal, and that no others are."""

from __future__ import annotations

import itertools

import pytest

from sbon_node.query.catalog import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_node.query.logical import Scan
from sbon_node.query.pushdown import push_down
from sbon_node.query.reader import read_query
from sbon_node.query.schema import parse_schema
from sbon_node.query.settings import QuerySettings
from sbon_node.query.signature import signature
from sbon_node.query.stages import Stage, cut

EQUAL = [
    [
        "SELECT a, b FROM s WHERE a > 1 AND b = 2",
        "SELECT a AS x, b AS y FROM s WHERE a > 1 AND b = 2",
        "SELECT f.a, f.b FROM s AS f WHERE f.b = 2 AND f.a > 1",
        "SELECT a, b FROM s WHERE 2 = b AND 1 < a",
        "SELECT (a), `b` FROM s WHERE ((a > 1) AND (b = 2))",
        "SELECT a, b FROM s WHERE a > 1 AND b = 2 AND a > 1",
        "select A, B from s where A > 1 and B = 2",
    ],
    ["SELECT a + b FROM s", "SELECT b + a FROM s", "SELECT (b) + a AS c FROM s"],
    ["SELECT upper(a) FROM s", "SELECT UPPER(a) FROM s"],
    ["SELECT a FROM s WHERE a >= b", "SELECT a FROM s WHERE b <= a"],
    ["SELECT a FROM s WHERE a = 1 OR b = 2 OR c = 3", "SELECT a FROM s WHERE c = 3 OR (b = 2 OR a = 1)"],
    ["SELECT a FROM s WHERE (a = 1 OR b = 2) AND c = 3", "SELECT a FROM s WHERE c = 3 AND (b = 2 OR a = 1)"],
    ["SELECT CAST(a AS INT) FROM s", "SELECT cast(a AS int) FROM s"],
    [
        "SELECT window.start AS w, a, count(*) AS n FROM s GROUP BY window(ts, '1 hour'), a",
        "SELECT window.start AS w, a, count(*) AS n FROM s GROUP BY a, window(ts, '60 minutes', '1 hour')",
        "SELECT x.window.start, a, n FROM (SELECT window, a, count(*) n, sum(b) FROM s GROUP BY window(ts, '1 hour'), a) x",
        "WITH t AS (SELECT * FROM s) SELECT window.start AS b, t.a, count(*) AS x FROM t GROUP BY window(ts, '1 hour'), t.a",
    ],
    [
        "SELECT x.a FROM s x JOIN r y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL 1 HOUR AND x.ts WHERE y.b > 1",
        "SELECT p.a FROM r q JOIN s p ON q.a = p.a AND q.ts BETWEEN p.ts - INTERVAL 1 HOUR AND p.ts AND q.b > 1",
        "SELECT p.a FROM r q, s p WHERE q.a = p.a AND q.b > 1 AND q.ts BETWEEN p.ts - INTERVAL 1 HOUR AND p.ts",
        "SELECT a FROM (SELECT x.a FROM s x JOIN (SELECT * FROM r WHERE b > 1) y ON y.a = x.a"
        " AND y.ts BETWEEN x.ts - INTERVAL 1 HOUR AND x.ts)",
    ],
]
UNEQUAL = [
    "SELECT a FROM s",
    "SELECT b FROM s",
    "SELECT a, b FROM s",
    "SELECT b, a FROM s",
    "SELECT a, b FROM s WHERE a > 1",
    "SELECT a, b FROM s WHERE a >= 1",
    "SELECT a, b FROM s WHERE a < 1",
    "SELECT a, b FROM s WHERE NOT a > 1",
    "SELECT a FROM s WHERE a = 1 OR b = 2 AND c = 3",
    "SELECT a FROM s WHERE (a = 1 OR b = 2) AND c = 3",
    "SELECT a FROM s WHERE a LIKE 'x'",
    "SELECT a FROM s WHERE a LIKE 'X'",
    "SELECT a FROM s WHERE NOT a LIKE 'x'",
    "SELECT a FROM s WHERE a ILIKE 'x'",
    "SELECT a - b FROM s",
    "SELECT b - a FROM s",
    "SELECT a - (b - c) FROM s",
    "SELECT a - b - c FROM s",
    "SELECT CAST(a AS INT) FROM s",
    "SELECT TRY_CAST(a AS INT) FROM s",
    "SELECT CAST(a AS BIGINT) FROM s",
    "SELECT CASE WHEN a THEN 1 ELSE 2 END FROM s",
    "SELECT CASE WHEN a THEN 2 ELSE 1 END FROM s",
    "SELECT CASE WHEN a THEN 1 END FROM s",
    "SELECT '1' FROM s",
    "SELECT 1 FROM s",
    "SELECT 1.0 FROM s",
    "SELECT a FROM s WHERE a IN (1, 2)",
    "SELECT a FROM s WHERE a IN (1, 3)",
    "SELECT a FROM s WHERE a BETWEEN 1 AND 2",
    "SELECT a FROM s WHERE a BETWEEN 2 AND 1",
    "SELECT a FROM s WHERE a IS NULL",
    "SELECT a FROM s WHERE a IS TRUE",
    "SELECT TRIM(a) FROM s",
    "SELECT TRIM(BOTH 'x' FROM a) FROM s",
    "SELECT TRIM(LEADING 'x' FROM a) FROM s",
    "SELECT EXTRACT(HOUR FROM a) FROM s",
    "SELECT EXTRACT(DAY FROM a) FROM s",
    "SELECT a + INTERVAL '1' DAY FROM s",
    "SELECT a + INTERVAL '1' HOUR FROM s",
    "SELECT concat(a, b) FROM s",
    "SELECT concat(b, a) FROM s",
    "SELECT a[0] FROM s",
    "SELECT a[1] FROM s",
    "SELECT window.start, a, count(*) AS n FROM s GROUP BY window(ts, '1 hour'), a",
    "SELECT window.end, a, count(*) AS n FROM s GROUP BY window(ts, '1 hour'), a",
    "SELECT window.start, a, count(b) AS n FROM s GROUP BY window(ts, '1 hour'), a",
    "SELECT window.start, a, count(*) AS n FROM s GROUP BY window(ts, '1 hour', '30 minutes'), a",
    "SELECT window.start, a, count(*) AS n FROM s GROUP BY window(ts, '1 hour'), a HAVING count(*) > 1",
    "SELECT x.a FROM s x JOIN r y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL 1 HOUR AND x.ts",
    "SELECT y.b FROM s x JOIN r y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL 1 HOUR AND x.ts",
    "SELECT x.a FROM s x LEFT JOIN r y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL 1 HOUR AND x.ts",
    "SELECT x.a FROM s x JOIN s y ON x.a = y.b AND y.ts BETWEEN x.ts - INTERVAL 1 HOUR AND x.ts",
    "SELECT y.a FROM s x JOIN s y ON x.a = y.b AND y.ts BETWEEN x.ts - INTERVAL 1 HOUR AND x.ts",
]


def entry(name: str, source: str = "one") -> CatalogEntry:
    declaration = StreamDeclaration(name=name, schema=parse_schema("ts timestamp, a int, b int, c int"), event_time="ts")
    return CatalogEntry(
        declaration=declaration, sources=(SourceDeclaration(stream=name, name=source, node="n", connector="file"),)
    )


CATALOG = {"s": entry("s"), "r": entry("r")}


def of_stage(stage: Stage) -> str:
    """With the signatures of what feeds it, down to the streams' names."""
    views = [
        [f.origin.entry.declaration.name if isinstance(f.origin, Scan) else of_stage(f.origin) for f in view.feeds]
        for view in stage.views
    ]
    return signature(stage.relation, views)


def signed(sql: str) -> str:
    (stage,) = cut(push_down(read_query(sql, CATALOG, QuerySettings())), sql)
    return of_stage(stage)


@pytest.mark.parametrize("group", EQUAL, ids=[group[0] for group in EQUAL])
def test_recognised_as_equal(group: list[str]) -> None:
    assert {signed(one) for one in group} == {signed(group[0])}


def test_all_others_differ() -> None:
    texts = [signed(one) for one in UNEQUAL]
    same = [(UNEQUAL[i], UNEQUAL[j]) for i, j in itertools.combinations(range(len(texts)), 2) if texts[i] == texts[j]]
    assert same == []


def test_inputs_are_part_of_it() -> None:
    assert signed("SELECT a FROM s") != signed("SELECT a FROM r")
