"""Equal signatures give equal rows: queries at random and what becomes of them by changes that may or may not keep their meaning,
evaluated by DuckDB wherever two of their stages have one signature; and each rule broken on purpose is found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from sbon_node.planning.sql.relations.logical import Aggregate, Join, Scan, Select
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite import canonical
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages import signature as signatures
from sbon_node.planning.sql.stages.cut import Stage, cut
from sbon_node.planning.sql.stages.signature import signature
from sbon_protocol.errors import SbonError
from tests.examples_drawn import examples
from tests.planning.sql.duck import Duck, sql_of_stage
from tests.planning.sql.random_queries import AT_RANDOM, CATALOG, changed, queries, tables

DUCK = Duck()
LOOK = settings(AT_RANDOM, max_examples=examples(150))
LOOK_LONGER = settings(LOOK, max_examples=examples(300))
SEEN = {"equal": 0, "equal in other words": 0}


def signed(sql: str) -> dict[str, Stage]:
    """All stages of a query by their signatures; none where it is refused."""
    try:
        stages = cut(push_down(read_query(sql, CATALOG, QuerySettings())), sql)
    except SbonError:
        return {}
    found: dict[str, Stage] = {}

    def sign(stage: Stage) -> str:
        feeds = [[one.origin for one in view.feeds] for view in stage.views]
        names = [[one.entry.declaration.name if isinstance(one, Scan) else sign(one) for one in of] for of in feeds]
        text = signature(stage.relation, names)
        found[text] = stage
        return text

    for stage in stages:
        sign(stage)
    return found


def check(sql: str, other: str, rows: dict[str, Any]) -> None:
    one, two = signed(sql), signed(other)
    for text in one.keys() & two.keys():
        SEEN["equal"] += 1
        if sql_of_stage(one[text]) != sql_of_stage(two[text]):
            SEEN["equal in other words"] += 1
            DUCK.holds(rows)
            assert DUCK.rows(one[text]) == DUCK.rows(two[text]), f"{sql}\n{other}"


@st.composite
def pairs(draw: st.DrawFn, given_sql: str = "") -> tuple[str, str]:
    sql = given_sql or draw(queries())
    return sql, draw(changed(sql, most=1 if given_sql else 3))


def look(how: settings, sql: str = "") -> None:
    """Tries random pairs, or random changes of one query."""

    @how
    @given(pairs(sql), tables())
    def equal_signatures_give_equal_rows(pair: tuple[str, str], rows: dict[str, Any]) -> None:
        check(*pair, rows)

    equal_signatures_give_equal_rows()


def test_equal_signatures_give_equal_rows() -> None:
    SEEN.update(dict.fromkeys(SEEN, 0))
    look(LOOK)
    assert SEEN["equal in other words"] >= 15, SEEN


def _patched(name: str, change: Callable[[Any], Any]) -> tuple[Any, str, Any]:
    real = getattr(signatures, name)
    return signatures, name, lambda relation, views: real(change(relation), views)


def _without_conditions(relation: Any) -> Any:
    return replace(relation, conditions=()) if isinstance(relation, Select) else relation


def _as_tumbling(relation: Aggregate) -> Aggregate:
    window = relation.window
    return replace(relation, window=replace(window, slide_ms=1, offset_ms=0)) if window else relation


def _as_inner(relation: Join) -> Join:
    return replace(relation, kind="inner")


def _blind(type_: type[exp.Expr]) -> tuple[Any, str, Any]:
    """Columns of that type look the same."""
    real = canonical.canonical_expression
    return canonical, "canonical_expression", lambda node: "?" if isinstance(node, type_) else real(node)


def _sorted_arguments() -> tuple[Any, str, Any]:
    real = canonical.canonical_expression

    def sorted_arguments(node: exp.Expr) -> str:
        if not isinstance(node, exp.Anonymous):
            return real(node)
        return real(exp.Anonymous(this=node.this, expressions=sorted(node.expressions, key=str)))

    return canonical, "canonical_expression", sorted_arguments


GROUPS = "SELECT window.start AS w, a, count(*) AS n FROM u GROUP BY window(ts, '1 hour', '30 minutes'), a"
PAIRS = "SELECT x.a, y.b FROM u x LEFT JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts"
PLANTED = {
    "a - b is b - a": (
        (canonical, "_COMMUTATIVE", (*canonical._COMMUTATIVE, exp.Sub)),
        "SELECT a - b AS c0 FROM u WHERE a - k > 1",
    ),
    "f(a, b) is f(b, a)": (_sorted_arguments(), "SELECT coalesce(a, b) AS c0, nullif(a, k) AS c1 FROM u"),
    "a > b is b <= a": ((canonical, "_MIRRORED", {exp.GT: exp.LTE, exp.GTE: exp.LTE}), "SELECT a, b FROM u WHERE a > b"),
    "NOT a > b is a > b": ((canonical, "_OPPOSITE", {exp.GT: exp.GT}), "SELECT a, b FROM u WHERE a > b"),
    "a AND b is a": (
        (canonical, "_flatten", lambda node: [node.this.unnest(), node.this.unnest()]),
        "SELECT a, b FROM u WHERE (a > 1 AND b < 3) OR k = 0",
    ),
    "numbers do not matter": (_blind(exp.Literal), "SELECT a FROM u WHERE a > 1 AND b < 3"),
    "NOT does not matter": (_blind(exp.Not), "SELECT a, b FROM u WHERE NOT (a > b AND b < 3)"),
    "conditions do not matter": (_patched("_relation", _without_conditions), "SELECT a, b FROM u WHERE a > b"),
    "slides do not matter": (_patched("_groups", _as_tumbling), GROUPS),
    "the kind of a join does not matter": (_patched("_pairs", _as_inner), PAIRS),
}


@pytest.mark.parametrize("rule", PLANTED)
def test_an_unsound_rule_is_found_out(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (module, name, wrong), sql = PLANTED[rule]
    monkeypatch.setattr(module, name, wrong)
    if name == "canonical_expression":
        monkeypatch.setattr(signatures, name, wrong)
    with pytest.raises(AssertionError):
        look(LOOK_LONGER, sql)
