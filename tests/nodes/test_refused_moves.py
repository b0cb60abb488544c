"""Moves that cannot be: each is refused by name, and the query goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.base.validation_messages import in_plain_words
from sbon_protocol.api.moves import MoveRequest
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import MoveHow, MoveOperator
from tests.nodes.clusters import UNHURRIED, ask, in_cluster, owner_of, plain
from tests.nodes.test_moved_operators import WINDOWS, check_windows, finished, operators, running

FULL = msgspec.structs.replace(UNHURRIED, engine=msgspec.structs.replace(CONFIG.engine, max_operators=0))
ROWS, RATE = 120, 2.0
REFUSALS = [
    ("b9", "c", "q", "operator-unknown: operator: q has no operator 'b9' (known: b0, o1)"),
    ("o1", "c", "r", "unknown-query: query: no node that answers has the query 'r'"),
    ("o1", "nowhere", "q", "node-away: to: nowhere is not a member"),
    ("o1", "b", "q", "already-there: q.o1: it runs at b already"),
    ("o1", "c", "q", "node-drained: to: c: this node has been drained"),
    ("o1", "d", "q", "no-capacity: to: d: 0 of 0 places are taken (it goes on at b)"),
    ("o1", "e", "q", "node-away: to: e is dead"),
    ("o1", "f", "q", "node-away: to: f has left"),
    ("o1", "g", "q", "java-missing: q.o1: g: no Java (install Java 17) (it goes on at b)"),
    ("o1", "h", "q", "node-away: to: h: this node is going away (it goes on at b)"),
]


@pytest.mark.parametrize(
    "field, value", [("operator", ""), ("operator", "o" * 513), ("to", ""), ("to", "n" * 64), ("to", "a\nb")]
)
def test_a_request_for_a_move_with_a_wrong_field_is_refused_by_name(field: str, value: str) -> None:
    body = msgspec.json.encode({"operator": "o1", "to": "c", field: value})
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(body, type=MoveRequest)
    assert in_plain_words(refused.value, MoveRequest)[0].endswith(field)


async def refusal(cluster: SimulatedCluster, operator: str, to: str, query: str = "q", how: MoveHow = "follow") -> str:
    """Return code and text of the error with which node ``a`` refuses a move, as users see them."""

    async def moved() -> None:
        async for _ in cluster.at("a").daemon.adaptation.requested.move(query, MoveRequest(operator=operator, to=to, how=how)):
            pass

    with pytest.raises(SbonError) as refused:
        await ask(cluster, "a", moved())
    error = refused.value
    return plain(f"{error.code}: {error.where}: {error.message} ({error.hint})")


async def stops_for_nobody(cluster: SimulatedCluster, operator: str) -> None:
    """An operator that is to stop before its copy goes on without a pause where its target would refuse it."""
    port = cluster.at("b").daemon.hosting.operators.ports.open[operator]
    halted, honest = [], port.freeze

    def freeze() -> Any:
        halted.append(True)
        return honest()

    port.freeze = freeze  # type: ignore[method-assign]
    assert (await refusal(cluster, "o1", "c", how="stop")).startswith("no-capacity: to: c: it has been drained")
    assert not halted


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_move_that_cannot_be_is_refused_by_name_and_changes_nothing(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path / "out.csv", WINDOWS, rows=ROWS, rate=RATE)
        operator = operators(cluster)[-1]

        async def drain() -> None:
            cluster.at("c").daemon.context.drained.mark(1)

        await ask(cluster, "c", drain())
        cluster.at("h").daemon.hosting.operators._checks.is_closed = True
        engine: Any = cluster.at("g").daemon.hosting.engine

        async def no_java(*_: object) -> None:
            raise SbonError("java-missing", "no Java", hint="install Java 17")

        engine.instantiate = no_java
        cluster.crash(cluster.at("e"))
        await ask(cluster, "f", cluster.at("f").daemon.adaptation.leaving.leave_and_stop())
        await cluster.clock.sleep(30)
        for named, to, query, text in REFUSALS:
            assert (await refusal(cluster, named, to, query)).startswith(text)
        call = MoveOperator(query=operator.rpartition(".")[0], operator=operator, target="e", attempt="b-e")
        with pytest.raises(SbonError) as refused:  # A drain tells failures of the target by its name.
            await cluster.at("b").daemon.hosting.moves.departures.move(call)
        assert (refused.value.code, refused.value.where) == ("node-away", "e")
        assert await owner_of(cluster, "a", operator) == ("b", 1)
        await stops_for_nobody(cluster, operator)
        await finished(cluster)
        assert (await refusal(cluster, "o1", "c")).startswith("query-over: query: q is finished")
        check_windows(tmp_path / "out.csv", ROWS)

    in_cluster(tmp_path, "abcdefgh", test, configs={"d": FULL})
