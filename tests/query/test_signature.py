"""Which fragments are recognised as equal, and that no others are."""

from __future__ import annotations

import itertools

import pytest

from sbon_node.query.signature import canonical, signature

EQUAL = [
    [
        "SELECT a, b FROM in0 WHERE a > 1 AND b = 2",
        "SELECT a AS x, b AS y FROM in0 WHERE a > 1 AND b = 2",
        "SELECT f.a, f.b FROM in0 AS f WHERE f.b = 2 AND f.a > 1",
        "SELECT a, b FROM in0 WHERE 2 = b AND 1 < a",
        "SELECT (a), `b` FROM in0 WHERE ((a > 1) AND (b = 2))",
        "SELECT a, b FROM in0 WHERE a > 1 AND b = 2 AND a > 1",
        "select A, B from in0 where A > 1 and B = 2",
    ],
    ["SELECT a + b FROM in0", "SELECT b + a FROM in0", "SELECT (b) + a AS c FROM in0"],
    ["SELECT upper(a) FROM in0", "SELECT UPPER(a) FROM in0"],
    ["SELECT a FROM in0 WHERE a >= b", "SELECT a FROM in0 WHERE b <= a"],
    ["SELECT a FROM in0 WHERE a = 1 OR b = 2 OR c = 3", "SELECT a FROM in0 WHERE c = 3 OR (b = 2 OR a = 1)"],
    ["SELECT a FROM in0 WHERE (a = 1 OR b = 2) AND c = 3", "SELECT a FROM in0 WHERE c = 3 AND (b = 2 OR a = 1)"],
    ["SELECT CAST(a AS INT) FROM in0", "SELECT cast(a AS int) FROM in0"],
]
UNEQUAL = [
    "SELECT a FROM in0",
    "SELECT b FROM in0",
    "SELECT a, b FROM in0",
    "SELECT b, a FROM in0",
    "SELECT a, b FROM in0 WHERE a > 1",
    "SELECT a, b FROM in0 WHERE a >= 1",
    "SELECT a, b FROM in0 WHERE a < 1",
    "SELECT a, b FROM in0 WHERE NOT a > 1",
    "SELECT a FROM in0 WHERE a = 1 OR b = 2 AND c = 3",
    "SELECT a FROM in0 WHERE (a = 1 OR b = 2) AND c = 3",
    "SELECT a FROM in0 WHERE a LIKE 'x'",
    "SELECT a FROM in0 WHERE a LIKE 'X'",
    "SELECT a FROM in0 WHERE NOT a LIKE 'x'",
    "SELECT a FROM in0 WHERE a ILIKE 'x'",
    "SELECT a - b FROM in0",
    "SELECT b - a FROM in0",
    "SELECT a - (b - c) FROM in0",
    "SELECT a - b - c FROM in0",
    "SELECT CAST(a AS INT) FROM in0",
    "SELECT TRY_CAST(a AS INT) FROM in0",
    "SELECT CAST(a AS BIGINT) FROM in0",
    "SELECT CASE WHEN a THEN 1 ELSE 2 END FROM in0",
    "SELECT CASE WHEN a THEN 2 ELSE 1 END FROM in0",
    "SELECT CASE WHEN a THEN 1 END FROM in0",
    "SELECT '1' FROM in0",
    "SELECT 1 FROM in0",
    "SELECT 1.0 FROM in0",
    "SELECT a FROM in0 WHERE a IN (1, 2)",
    "SELECT a FROM in0 WHERE a IN (1, 3)",
    "SELECT a FROM in0 WHERE a BETWEEN 1 AND 2",
    "SELECT a FROM in0 WHERE a BETWEEN 2 AND 1",
    "SELECT a FROM in0 WHERE a IS NULL",
    "SELECT a FROM in0 WHERE a IS TRUE",
    "SELECT TRIM(a) FROM in0",
    "SELECT TRIM(BOTH 'x' FROM a) FROM in0",
    "SELECT TRIM(LEADING 'x' FROM a) FROM in0",
    "SELECT EXTRACT(HOUR FROM a) FROM in0",
    "SELECT EXTRACT(DAY FROM a) FROM in0",
    "SELECT a + INTERVAL '1' DAY FROM in0",
    "SELECT a + INTERVAL '1' HOUR FROM in0",
    "SELECT concat(a, b) FROM in0",
    "SELECT concat(b, a) FROM in0",
    "SELECT a[0] FROM in0",
    "SELECT a[1] FROM in0",
]


@pytest.mark.parametrize("group", EQUAL, ids=[group[0] for group in EQUAL])
def test_recognised_as_equal(group: list[str]) -> None:
    assert {canonical(one) for one in group} == {canonical(group[0])}
    assert len({signature(one, ("source/s/a",)) for one in group}) == 1


def test_all_others_differ() -> None:
    texts = [canonical(one) for one in UNEQUAL]
    same = [(UNEQUAL[i], UNEQUAL[j]) for i, j in itertools.combinations(range(len(texts)), 2) if texts[i] == texts[j]]
    assert same == []


def test_inputs_are_part_of_it() -> None:
    fragment = "SELECT a FROM in0"
    assert signature(fragment, ("source/s/a",)) != signature(fragment, ("source/s/b",))
