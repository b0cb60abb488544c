"""Which queries are recognised as equal and which are not: a file of both."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from sbon_node.model.schema import parse_schema
from sbon_node.planning.sql.relations.logical import Scan
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.cut import Stage, cut
from sbon_node.planning.sql.stages.signature import signature
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration

BLOCK = re.compile(r"^-- (?P<kind>equal|differ): (?P<what>.*)\n(?P<queries>(?:.*\n)*?)--$", re.MULTILINE)
TEXT = (Path(__file__).parent / "equivalences.sql").read_text(encoding="utf-8")
BLOCKS = [(one["kind"], one["what"], one["queries"].splitlines()) for one in BLOCK.finditer(TEXT)]


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


@pytest.mark.parametrize("kind, what, queries", BLOCKS, ids=[f"{kind}: {what}" for kind, what, _ in BLOCKS])
def test_signatures_recognise_equal_relations_alone(kind: str, what: str, queries: list[str]) -> None:
    texts = [signed(one) for one in queries]
    if kind == "equal":
        assert set(texts) == {texts[0]}
    else:
        same = [(queries[i], queries[j]) for i, j in itertools.combinations(range(len(texts)), 2) if texts[i] == texts[j]]
        assert same == []


def test_equal_in_one_block_may_be_different_in_another() -> None:
    first = {signed(queries[0]): what for kind, what, queries in BLOCKS if kind == "equal"}
    assert len(first) == len([kind for kind, _, _ in BLOCKS if kind == "equal"])


def test_the_table_is_read() -> None:
    pairs = {kind: sum(len(queries) - 1 for one, _, queries in BLOCKS if one == kind) for kind in ("equal", "differ")}
    assert min(pairs.values()) >= 45
    assert len(BLOCKS) == len(re.findall(r"^-- (?:equal|differ): ", TEXT, re.MULTILINE))


def test_inputs_are_part_of_it() -> None:
    assert signed("SELECT a FROM s") != signed("SELECT a FROM r")
