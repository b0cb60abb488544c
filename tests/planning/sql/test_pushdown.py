"""Pushed down queries give the rows of the original: queries at random, evaluated by DuckDB as read, as
pushed down and as cut into stages; each unsound rule is detected."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from sqlglot import exp

from sbon_node.planning.sql.relations.logical import LEFT, RIGHT, Join, Output, Relation, Select, column
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite import pushdown
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.cut import cut
from tests.examples_drawn import examples
from tests.planning.sql.duck import Duck
from tests.planning.sql.random_queries import AT_RANDOM, CATALOG, queries, table, tables

DUCK = Duck()
LOOK = settings(AT_RANDOM, max_examples=examples(100))


def read(sql: str) -> Relation:
    return read_query(sql, CATALOG, QuerySettings())


def look(how: settings) -> Counter[str]:
    """Tries random queries; how many there were, and how many had rows."""
    seen: Counter[str] = Counter()

    @how
    @given(queries(), tables())
    def pushing_down_changes_no_row(sql: str, rows: dict[str, Any]) -> None:
        DUCK.holds(rows)
        as_written = DUCK.rows(read(sql))
        pushed = push_down(read(sql))
        assert DUCK.rows(pushed) == as_written, sql
        assert sum((DUCK.rows(stage) for stage in cut(pushed, sql)), Counter()) == as_written, sql
        seen.update(queries=1, with_rows=bool(as_written))

    pushing_down_changes_no_row()
    return seen


def test_pushing_down_changes_no_row() -> None:
    seen = look(LOOK)
    assert seen["with_rows"] >= seen["queries"] // 3, seen


JOIN = "SELECT x.a, y.b, x.s FROM u x {kind} v y ON {on} AND y.ts BETWEEN x.ts - INTERVAL '2' HOUR AND x.ts + INTERVAL '2' HOUR"
OUTER = [f"{JOIN.format(kind=kind, on='x.a = y.a')} WHERE {where}" for kind in ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
         for where in ("y.b IS NULL", "x.b IS NULL", "y.b = 1", "x.b = 1")]  # fmt: skip
ON_ONE_SIDE = [JOIN.format(kind=kind, on=f"x.a = y.a AND {on}") for kind in ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
               for on in ("x.b = 1", "y.b = 1")]  # fmt: skip
ON_THE_KEY = [JOIN.format(kind=kind, on=f"x.a = y.a AND {on}") for kind in ("LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
              for on in ("x.a > 0", "y.a > 0", "x.a > 0 AND y.a < 3", "y.a IS NULL")]  # fmt: skip
SEMI_JOIN = "SELECT x.a, x.b FROM u x LEFT SEMI JOIN v y ON x.a = y.a AND {on} AND y.ts BETWEEN x.ts - INTERVAL '2' HOUR AND x.ts"
SEMI_ON_THE_KEY = [SEMI_JOIN.format(on=on) for on in ("x.a > 0", "y.a > 0")]
"""Conditions in ON on a column of the equality are inferred for its other side, which must not be the one whose rows all stay."""
ACROSS = [f"{JOIN.format(kind=kind, on=on)} WHERE {where}" for kind in ("JOIN", "LEFT JOIN", "RIGHT JOIN") for on, where in (
    ("x.d = y.d", "CAST(x.d AS STRING) LIKE '-%'"), ("x.k = y.a", "typeof(x.k) = 'bigint'"), ("x.d = y.a", "x.d > 0"),
    ("x.a = y.a", "x.a > 0 AND y.a < 3"), ("x.a = y.a", "coalesce(x.a, 1) = 1"), ("x.s = y.s", "x.s LIKE '0%' OR x.s IS NULL"),
)]  # fmt: skip
GROUPED = "SELECT w, n FROM (SELECT {piece}.start AS w, a, count(*) AS n, max(b) AS m FROM u GROUP BY {window}, a) WHERE {where}"
OVER_GROUPS = [
    GROUPED.format(piece=window.split("(")[0], window=window, where=where)
    for window in ("window(ts, '1 hour')", "window(ts, '1 hour', '20 minutes')", "session_window(ts, '30 minutes')")
    for where in ("a = 1", "n > 1", "m = 1", "a = 1 OR n > 1", "w > TIMESTAMP '2013-01-01 01:00:00'", "a IS NULL")
]
CASES = [*OUTER, *ON_ONE_SIDE, *ON_THE_KEY, *SEMI_ON_THE_KEY, *ACROSS, *OVER_GROUPS]


def differing(sql: str, seeds: range) -> list[int]:
    """The tables on which pushing down changes the query's rows."""
    pushed = push_down(read(sql))
    found = []
    for seed in seeds:
        DUCK.holds({name: table_of(seed, name) for name in CATALOG})
        if DUCK.rows(pushed) != DUCK.rows(read(sql)):
            found.append(seed)
    return found


def table_of(seed: int, name: str) -> Any:
    return table(random.Random(f"{seed} {name}"))


@pytest.mark.parametrize("sql", CASES)
def test_a_case_by_itself(sql: str) -> None:
    assert differing(sql, range(4)) == []


def _everything_is_of_one_type(relation: Relation) -> dict[str, str]:
    return dict.fromkeys(relation.names, "int")


def _above_as_below(real: Callable[..., Any]) -> Callable[..., Any]:
    def into_aggregate(relation: Any, conditions: Any, wanted: Any) -> Any:
        """A condition on a window's start asked of the time of its rows."""
        window = relation.window
        moved = [one for one in conditions if window and {c.name for c in one.find_all(exp.Column)} == {window.start}]
        if not moved:
            return real(relation, conditions, wanted)
        asked = tuple(one.transform(lambda n: column(window.time) if isinstance(n, exp.Column) else n) for one in moved)
        names = relation.child.names
        child = Select(relation.child, tuple(Output(name, column(name)) for name in names), asked)
        return real(replace(relation, child=child), tuple(one for one in conditions if one not in moved), wanted)

    return into_aggregate


def _inferred_for(sides: Mapping[str, tuple[str, ...]]) -> Callable[..., Any]:
    """The rule of equalities with another table of the sides that it may ask."""

    def infer(join: Join, of_both: Any, to: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pushdown, "_FILTERED_BY_ON", sides)
            _INFER(join, of_both, to)

    return infer


_INFER = pushdown._infer
BOTH = (LEFT, RIGHT)
PLANTED = {
    "below the null side of a left join": ("PRESERVED", {**pushdown.PRESERVED, "left": BOTH}, OUTER),
    "below the null side of a right join": ("PRESERVED", {**pushdown.PRESERVED, "right": BOTH}, OUTER),
    "below a full join": ("PRESERVED", {**pushdown.PRESERVED, "full": BOTH}, OUTER),
    "ON drops rows of the kept side": ("_FILTERED_BY_ON", {**pushdown._FILTERED_BY_ON, "left": BOTH}, ON_ONE_SIDE),
    "ON drops rows of a full join": ("_FILTERED_BY_ON", {**pushdown._FILTERED_BY_ON, "full": BOTH}, ON_ONE_SIDE),
    "what ON asks of the key is inferred for the side that stays": ("_infer", _inferred_for(pushdown.PRESERVED), ON_THE_KEY),
    "equal values of any type are the same": ("types_of", _everything_is_of_one_type, ACROSS),
    "a window's start is its rows' time": ("_into_aggregate", _above_as_below(pushdown._into_aggregate), OVER_GROUPS[::-1]),
    "the last condition is lost": ("_distinct", lambda conditions: tuple(conditions)[:-1], OUTER),
}
"""Each with some cases that show it."""


@pytest.mark.parametrize("rule", PLANTED)
def test_an_unsound_rule_is_found_out(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, wrong, cases = PLANTED[rule]
    monkeypatch.setattr(pushdown, name, wrong)
    if rule.startswith("equal values"):
        monkeypatch.setattr(pushdown, "is_error_free", lambda condition, types: True)
    assert any(differing(sql, range(4)) for sql in cases)


@pytest.mark.parametrize(
    "condition, inferred",
    [
        ("x.a > 1", True),
        ("x.a IN (1, 2)", True),
        ("mod(x.a, 4) = 0", True),
        ("x.a % 4 = 0", True),
        ("NOT (x.a = 1 OR x.a IS NULL)", True),
        ("x.a BETWEEN 1 AND 2", True),
        ("10 / x.a > 1", False),
        ("mod(10, x.a) = 0", False),
        ("x.a + 1 > 2", False),
        ("x.a = '1'", False),
        ("CAST(x.a AS STRING) = '1'", False),
        ("x.a > x.b", False),
    ],
)
def test_only_what_cannot_fail_is_inferred_across_an_equality(condition: str, inferred: bool) -> None:
    """Rows of the other side may hold what no row of this one does: to ask them could end the query."""
    join = push_down(read(f"SELECT x.s FROM u x JOIN v y ON x.a = y.a AND x.ts = y.ts WHERE {condition}"))
    assert isinstance(join, Select)
    assert isinstance(join.child, Join)
    assert [len(getattr(side, "conditions", ())) for side in (join.child.left, join.child.right)] == [1, int(inferred)]
