"""``sbon experiment reuse``: which queries are drawn, their figures, and small runs of whole daemons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbon_lab.bench.usage import Area
from sbon_lab.experiments.harness.topologies import topology_named
from sbon_lab.experiments.reuse import paper
from sbon_lab.experiments.reuse.figures import MODES, experiment, figures, wrong
from sbon_lab.experiments.reuse.links import links_once, owners
from sbon_lab.experiments.reuse.run import Observed, observe
from sbon_lab.experiments.reuse.world import PRODUCERS, ROWS_S, STREAMS, World, catalogue, draw, write_streams, zipf
from sbon_lab.suite.reference import Reference
from sbon_lab.suite.streams import SuiteStream
from sbon_protocol.api.queries import LinkInfo, OperatorInfo, QueryInfo
from sbon_protocol.errors import SbonError

NETWORK = topology_named("ts208", 1)
SMALL: dict[str, Any] = {"nodes": 12, "queries": 10, "exponent": 2.0, "every_s": 3.0, "tail_s": 15.0, "seed": 1}


def test_popularity_follows_zipfs_law() -> None:
    drawn = zipf(50, 20_000, 1.0, np.random.default_rng(3))
    counts = [count for _, count in Counter(drawn).most_common()]
    harmonic = sum(1 / rank for rank in range(1, 51))
    for rank in (1, 2, 4, 8):
        assert counts[rank - 1] == pytest.approx(20_000 / rank / harmonic, rel=0.1)
    assert max(Counter(zipf(50, 20_000, 0.0, np.random.default_rng(3))).values()) < 500
    assert set(drawn) <= set(range(50))


def test_a_world_is_that_of_its_seed() -> None:
    world, again, other = draw(NETWORK, **SMALL), draw(NETWORK, **SMALL), draw(NETWORK, **SMALL | {"seed": 2})
    assert (world.queries, world.producers) == (again.queries, again.producers) != (other.queries, other.producers)
    assert len({node for nodes in world.producers.values() for node in nodes.values()}) == STREAMS * PRODUCERS
    assert [query.at_s for query in world.queries] == [3.0 * number for number in range(10)]
    assert world.seconds == 9 * 3.0 + 15.0
    with pytest.raises(SbonError, match="209 are needed"):
        draw(NETWORK, **SMALL | {"nodes": 209})


def test_every_template_has_rows(tmp_path: Path) -> None:
    world = draw(NETWORK, **SMALL)
    reference = Reference(write_streams(world, tmp_path, 1))
    templates = catalogue(tuple(world.producers))
    assert len({template.sql for template in templates}) == len(templates) == 64
    for query, template in zip(world.queries * 7, templates, strict=False):
        rows = len(reference.answer(query._replace(template=template).case))
        assert 0 < rows < STREAMS * PRODUCERS * ROWS_S * world.seconds


def link(stream: str, target: str, size: int, saved: int = 0) -> LinkInfo:
    ends = {"stream": stream, "source_node": "n000", "target": target, "target_node": "n001"}
    return LinkInfo(**ends, rows=1, bytes=size, latency_ms=None, saved_bytes=saved)


def described(uid: str, *links: LinkInfo, shared: tuple[str, ...] = (), operators: tuple[str, ...] = ()) -> QueryInfo:
    """A query of which little counts."""
    empty: dict[str, Any] = dict.fromkeys(QueryInfo.__struct_fields__, None)
    named = {
        which: tuple(OperatorInfo(id=one, node="n001", fragment="", state="running") for one in ids)
        for which, ids in (("shared", shared), ("operators", operators))
    }
    return QueryInfo(**(empty | {"uid": uid, "links": links, **named}))


def test_a_link_into_a_shared_operator_counts_once() -> None:
    first = described("q0-a", link("s0", "q0-a.b0#0", 5000), link("q0-a.b0", "q0-a.sink", 100), operators=("q0-a.b0",))
    second = described("q1-b", link("s0", "q0-a.b0#0", 7000), link("q0-a.b0", "q1-b.sink", 300, 200), shared=("q0-a.b0",))
    infos = {"q0": first, "q1": second}
    assert sorted(one.bytes for one in links_once(infos.values())) == [100, 300, 7000]
    assert owners(infos) == ["q0"]
    world = draw(NETWORK, **SMALL)
    row = figures(world, Observed(infos, infos, {"q2": "no-capacity: none"}, "", {}, 9, 8, 1.0), Reference({}))
    assert (row["queries"], row["refused"], row["operators"], row["shared"], row["sharing"]) == (2, 1, 1, 1, 1)
    assert row["byte_ms"] == round(7200 * world.one_way_ms("n000", "n001"))


@pytest.fixture(scope="module")
def streams(world: World, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, SuiteStream]:
    return write_streams(world, tmp_path_factory.mktemp("posts"), 1)


@pytest.fixture(scope="module")
def world() -> World:
    """Queries over one stream that differ in a constant, in columns, or in a width alone, and then four of them again."""
    world = draw(NETWORK, **SMALL)
    templates = [template for template in catalogue(("s0",)) if template.kind != "join"]
    chosen = [templates[number] for number in (0, 2, 3, 8, 9, 10, 0, 3, 8, 10)]
    queries = (query._replace(template=template) for query, template in zip(world.queries, chosen, strict=True))
    return world._replace(queries=tuple(queries), producers={"s0": world.producers["s0"]})


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
def test_queries_share_and_have_their_rows_though_one_is_stopped(world: World, streams: Mapping[str, SuiteStream]) -> None:
    run = observe(world, streams, reuse="auto", stop_s=world.seconds / 2, seed=1)
    assert run.stopped in owners(run.accepted)
    assert run.ended[run.stopped].state == "stopped"
    assert {info.state for name, info in run.ended.items() if name != run.stopped} == {"finished"}
    reference = Reference(streams)
    assert wrong(world, run, reference) == {}
    row = figures(world, run, reference)
    assert row["shared"] >= 4
    # Rows of another query are noticed, and so are those that are missing.
    names = [name for name in run.rows if name != run.stopped]
    one, other = next((a, b) for a in names for b in names if len(run.rows[a]) > len(run.rows[b]))
    exchanged = run._replace(rows=run.rows | {one: run.rows[other], run.stopped: [*run.rows[other], *run.rows[one]]})
    assert set(wrong(world, exchanged, reference)) == {one, run.stopped}
    assert set(wrong(world, run._replace(rows=run.rows | {one: run.rows[one][1:]}), reference)) == {one}


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize(
    "size, jobs",
    [
        (SMALL | {"queries": 6, "every_s": 2.0, "tail_s": 8.0}, 1),
        pytest.param(SMALL, 2, marks=pytest.mark.only_in_test_all("experiments of today's size")),
    ],
    ids=["small", "large"],
)
def test_reuse_saves_bytes_and_operators(size: dict[str, Any], jobs: int) -> None:
    rows = experiment(NETWORK, **size, jobs=jobs)
    assert [(row["reuse"], bool(row["stopped"])) for row in rows] == [
        *((reuse, False) for reuse in MODES),
        (MODES[-1], True),
    ]
    assert {(row["queries"], row["refused"], row["wrong"]) for row in rows} == {(size["queries"], 0, 0)}
    never, *sharing = rows[: len(MODES)]
    assert (never["shared"], never["sharing"], never["saved_pct"]) == (0, 0, 0.0)
    for row in sharing:
        assert row["rows"] == never["rows"]
        assert row["operators"] < never["operators"]
        assert row["link_mb"] < never["link_mb"]
        assert row["data_mb"] < never["data_mb"]
        assert row["saved_pct"] == pytest.approx(100 * (1 - row["byte_ms"] / never["byte_ms"]), abs=0.06)


def test_the_papers_queries_have_equal_rows_but_for_the_fourth(tmp_path: Path) -> None:
    stream = paper.write_posts(tmp_path, "never", 20.0, 1)
    reference = Reference({"posts_never": stream})
    answers = [sorted(reference.answer(query.case)) for query in paper.queries("posts_never", "never")]
    assert answers[0] == answers[1] == answers[2] != answers[3]
    assert [sum(row[1] for row in rows) for rows in answers] == [2 * ROWS_S * 20] * 4
    assert len(answers[0]) == 2 * len(answers[3]) == 10


def test_the_saving_is_beside_the_usage_without_reuse() -> None:
    area = Area(("n000", "n001"), ((0.0, 20.0), (20.0, 0.0)))
    first = described("q0-a", link("s0", "q0-a.b0#0", 5000), operators=("q0-a.b0",))
    second = described("q1-b", link("s0", "q0-a.b0#0", 5000), link("q0-a.b0", "q1-b.sink", 900, 200), shared=("q0-a.b0",))
    assert paper.usage_byte_ms([first, second], area) == 57_000.0
    row = paper.figures([first, second], 200_000.0, 180_000.0, 2.0, 0, 3, None)
    assert (row["usage_bytes"], row["own_usage_bytes"], row["saved_pct"]) == (100.0, 90.0, None)
    assert (row["operators"], row["shared"], row["sharing"], row["link_mb"]) == (1, 1, 1, 0.006)
    assert paper.figures([first], 200_000.0, 0.0, 2.0, 0, 3, 400.0)["saved_pct"] == 75.0
