"""Operators move between real nodes while rows arrive: the rows stay DuckDB's, each once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sbon.model import SinkSpec
from sbon_lab.migration.kinds import KINDS, Kind
from sbon_lab.migration.moving_query import MovingQuery
from sbon_protocol.errors import SbonError
from tests.live.world import UNHURRIED, World, finished, stored, submit, wait_for

pytestmark = pytest.mark.live
only_in_test_all = pytest.mark.only_in_test_all("moves of operators on live nodes")
QUICK_KIND = "left-join"
"""Its rows without a partner depend most on the watermark of the switch."""

_HALF = "(SELECT ts, n FROM {in0} WHERE n % 2 = 0)"
_WITH_ITSELF = f"SELECT x.ts AS ts, x.n AS n, y.n AS other FROM {_HALF} AS x JOIN {_HALF} AS y ON x.n = y.n AND x.ts = y.ts"
WITH_ITSELF = Kind(
    _WITH_ITSELF,
    _WITH_ITSELF.format(in0="in0"),
    {"ts": "TIMESTAMPTZ", "n": "BIGINT", "other": "BIGINT"},
    "ts",
)
"""A join of a stream with itself: its first operator's stream is read twice."""


def moved_along(query: MovingQuery, operator: str, hosts: Sequence[str]) -> None:
    """Move the operator from host to host, and wait until the last one has published some rows."""
    for host in hosts:
        move = query.move(operator, host)
        assert query.host_of(operator) == host
        if operator == query.operators()[-1]:
            query.beyond(move)
    query.more(3)


def assert_right(query: MovingQuery) -> None:
    assert query.end(query.answers()) == (0, 0)
    numbers = [arrival.number for arrival in query.arrivals]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind == QUICK_KIND else only_in_test_all) for kind in KINDS])
def test_operators_go_on_elsewhere_and_return(world: World, tmp_path: Path, kind: str) -> None:
    """The last operator begins beside the consumer; the first is read by another operator."""
    with MovingQuery(
        world.cluster, "ada", f"moved-{kind}", KINDS[kind], UNHURRIED, tmp_path / "query", strategy="consumer"
    ) as query:
        query.more(3)
        first, *_, last = (*query.operators()[:1], query.operators()[-1])
        moved_along(query, last, ("bob", "ada"))
        if first != last:
            moved_along(query, first, ("bob",))
        assert_right(query)


@only_in_test_all
def test_a_stream_that_is_read_twice_moves_with_both_readers(world: World, tmp_path: Path) -> None:
    with MovingQuery(
        world.cluster, "dee", "moved-twice-read", WITH_ITSELF, UNHURRIED, tmp_path / "query", strategy="consumer"
    ) as query:
        query.more(3)
        first, last = query.operators()
        moved_along(query, first, ("ada", "bob"))
        moved_along(query, last, ("ada",))
        moved_along(query, first, ("ada",))
        assert_right(query)


@only_in_test_all
def test_a_query_finishes_after_its_operators_have_moved(world: World, tmp_path: Path) -> None:
    """Each site's operator moves once, and one of them where the query's result is written."""
    world.declare("moved_files", replay=500)
    sql = "SELECT site, n, value * 2e0 AS twice, upper(note) AS note, ts FROM moved_files WHERE n % 2 = 0 AND value > 10e0"
    path = tmp_path / "rows.ndjson"
    client = world.cluster["ada"].client
    with world.cluster["ada"].connect() as overlay:
        info = submit(world.cluster["ada"], sql=sql, consumer="dee", strategy="producer", sink=_file(path))
        wait_for(lambda: path.exists() and path.stat().st_size > 0, "rows have come")
        targets = {"ada": "bob", "bob": "dee", "cyd": "ada"}
        query = overlay.query(info.id)
        for operator in client.query(info.id).operators:
            moved = query.move(operator.id, targets[operator.node])
            assert (moved.origin, moved.node) == (operator.node, targets[operator.node])
    wait_for(lambda: finished(world.cluster["bob"], info.id), "the query is finished")
    assert stored(path) == world.answer()


@only_in_test_all
def test_a_move_that_is_refused_changes_nothing(world: World, tmp_path: Path) -> None:
    with MovingQuery(
        world.cluster, "dee", "moved-nowhere", KINDS["filter"], UNHURRIED, tmp_path / "query", strategy="consumer"
    ) as query:
        query.more(3)
        (only,) = query.operators()
        for target, code in (("dee", "already-there"), ("eve", "node-away")):
            with pytest.raises(SbonError) as refusal:
                query.move(only, target)
            assert refusal.value.code == code
        assert query.host_of(only) == "dee"
        assert_right(query)


def _file(path: Path) -> SinkSpec:
    return SinkSpec(kind="file", options={"path": str(path), "format": "ndjson"})
