"""The rows of a residual over another query's output equal those of the stage alone, for random pairs evaluated by DuckDB."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings

from sbon_node.planning.sql.stages.fragments import fragment_of
from sbon_protocol.errors import SbonError
from tests.examples_drawn import examples
from tests.planning.sql.duck import Duck, sql_of, sql_of_stage
from tests.planning.sql.random_queries import AT_RANDOM, CATALOG, changed, queries, tables
from tests.planning.sql.sharing.duck_schemas import schemas_of
from tests.planning.sql.sharing.random_pairs import SHAPES, pairs
from tests.planning.sql.sharing.shared_stages import offer_of, read_offer, shared, signed, stages_of

DUCK = Duck()
PAIRS = 150
LEAST = {
    "plain": {"of results": 40},
    "grouped": {"contained": 40, "of results": 15, "rolled up": 8},
    "joined": {"contained": 180, "of results": 40},
    "any": {"contained": 6},
}
"""Pairs that must be shared of ``PAIRS``, or of 60 of any shape: a matcher that never matches is sound, too."""


def check(wanted: str, offered: str, seen: Counter[str]) -> None:
    """Compare the rows of every stage that can be shared."""
    try:
        ways = shared(wanted, offered, CATALOG, schemas_of(DUCK))
    except SbonError:
        return
    results = {signed(stages_of(sql, CATALOG)[-1]) for sql in (wanted, offered)}
    for way in ways:
        alone = DUCK.rows(way.stage)
        relation = way.residual.relation
        assert DUCK.bag(sql_of(relation, [sql_of_stage(way.offered)])) == alone, f"{wanted}\n{offered}\n{fragment_of(relation)}"
        of_results = {signed(way.stage), signed(way.offered)} == results and len(results) == 2
        seen["contained"] += bool(alone) and signed(way.stage) != signed(way.offered)
        seen["of results"] += bool(alone) and of_results
        seen["rolled up"] += bool(alone) and way.residual.has_state


@pytest.mark.parametrize("shape", SHAPES)
def test_shared_rows_are_the_rows_alone(shape: str) -> None:
    seen: Counter[str] = Counter()

    @settings(AT_RANDOM, max_examples=examples(PAIRS))
    @given(pairs(shape), tables())
    def look(pair: tuple[str, str], rows: dict[str, Any]) -> None:
        DUCK.holds(rows)
        check(*pair, seen)

    look()
    assert all(seen[kind] * PAIRS >= least * examples(PAIRS) for kind, least in LEAST[shape].items()), seen


def test_queries_that_were_changed_share_equal_rows_only() -> None:
    """Queries of all shapes, and what becomes of them by changes that may or may not keep their meaning."""
    seen: Counter[str] = Counter()

    @settings(AT_RANDOM, max_examples=examples(60))
    @given(queries().flatmap(lambda sql: changed(sql).map(lambda other: (sql, other))), tables())
    def look(pair: tuple[str, str], rows: dict[str, Any]) -> None:
        DUCK.holds(rows)
        check(*pair, seen)
        check(*reversed(pair), seen)

    look()
    assert seen["contained"] * 60 >= LEAST["any"]["contained"] * examples(60), seen


def test_every_fragment_is_read_as_it_was_meant() -> None:
    """Relation, signature and lags of an operator are what its planner had, by its text alone."""
    seen: Counter[str] = Counter()

    @settings(AT_RANDOM, max_examples=examples(120))
    @given(queries(), tables())
    def look(sql: str, rows: dict[str, Any]) -> None:
        DUCK.holds(rows)
        try:
            stages = stages_of(sql, CATALOG)
            offers = [offer_of(stage, schemas_of(DUCK)) for stage in stages]
        except SbonError:
            return
        for stage, offer in zip(stages, offers, strict=True):
            read = read_offer(offer)
            assert read is not None, offer.computation.fragment
            assert read.signature == signed(stage), offer.computation.fragment
            seen[type(stage.relation.child).__name__] += 1

    look()
    assert min(seen.values()) >= examples(120) // 4, seen
    assert len(seen) == 3, seen
