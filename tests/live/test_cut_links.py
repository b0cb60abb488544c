"""Cut and healed links of a running query: DuckDB's rows arrive, each once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sbon.model import SinkSpec
from tests.live.relay import Manner, Relay
from tests.live.world import NODES, SITES, SQL, World, finished, stored, submit, wait_for

pytestmark = pytest.mark.live

REPLAY = 4000.0
"""The sources need five seconds for their rows, which so come in many frames."""
AMID_BYTES = 48 * 1024
"""Bytes that a connection carries before it stalls and is cut: less than any stream, and more than any request."""
PROBES = 8
"""Lost datagrams of one path that give SWIM enough time to declare an unreachable node dead."""


def others_than(name: str) -> tuple[str, ...]:
    return tuple(node for node in NODES if node != name)


def see_each_other(world: World, side: Sequence[str], other: Sequence[str], state: str) -> bool:
    """Whether all nodes of either side have those of the other in this state."""

    def sees(one: str, those: Sequence[str]) -> bool:
        return all(m.state == state for m in world.cluster[one].client.members() if m.name in those)

    return all(sees(one, other) for one in side) and all(sees(one, side) for one in other)


@pytest.mark.only_in_test_all("cut links of live nodes")
@pytest.mark.parametrize(
    "alone, strategy, manner",
    [
        pytest.param("dee", "producer", "reset", id="consumer-and-operators-reset"),
        pytest.param("dee", "producer", "lose", id="consumer-and-operators-lose"),
        pytest.param("ada", "consumer", "hold", id="source-and-operators-hold"),
        pytest.param("ada", "consumer", "lose", id="source-and-operators-lose"),
    ],
)
def test_a_node_cut_off_until_it_is_declared_dead(
    world: World, relay: Relay, tmp_path: Path, alone: str, strategy: str, manner: Manner
) -> None:
    name, rest = f"cut_{alone}_{manner}", others_than(alone)
    world.declare(name, replay=REPLAY)
    path, bob = tmp_path / "rows.ndjson", world.cluster["bob"]
    sink = SinkSpec(kind="file", options={"path": str(path), "format": "ndjson"})

    with relay.limit([alone], rest, AMID_BYTES) as amid:
        info = submit(bob, sql=SQL.replace("readings", name), consumer="dee", sink=sink, strategy=strategy)
        assert {o.node for o in info.operators} == ({"dee"} if strategy == "consumer" else set(SITES))
        wait_for(amid.is_set, "rows are under way")
        with relay.cut([alone], rest, manner):
            wait_for(lambda: see_each_other(world, [alone], rest, "dead"), "either side takes the other for dead")
            assert not finished(bob, info.id)

    world.cluster.wait_converged()
    wait_for(lambda: finished(bob, info.id), "the query is finished")
    assert stored(path) == world.answer()


def test_single_cut_paths_kill_no_member(world: World, relay: Relay, tmp_path: Path) -> None:
    """Unreachable nodes stay members, since helpers reach them; their streams wait until the paths heal."""
    world.declare("cut_paths", replay=REPLAY)
    path, cyd = tmp_path / "rows.ndjson", world.cluster["cyd"]
    sink = SinkSpec(kind="file", options={"path": str(path), "format": "ndjson"})

    with relay.limit(["ada"], ["dee"], AMID_BYTES) as amid_ada, relay.limit(["bob"], ["dee"], AMID_BYTES) as amid_bob:
        info = submit(cyd, sql=SQL.replace("readings", "cut_paths"), consumer="dee", sink=sink, strategy="producer")
        wait_for(lambda: amid_ada.is_set() and amid_bob.is_set(), "rows are under way")
        with relay.cut(["ada"], ["dee"], "lose"), relay.cut(["bob"], ["dee"], "reset"):
            wait_for(lambda: min(relay.lost(name, "dee") for name in ("ada", "bob")) >= PROBES, "probes are lost")
            wait_for(lambda: see_each_other(world, ["ada", "bob"], ["dee"], "alive"), "all are held for alive")
            assert not finished(cyd, info.id)

    wait_for(lambda: finished(cyd, info.id), "the query is finished")
    assert stored(path) == world.answer()
