"""Rehearsals of operators on real Spark: whatever the kind, once for each, and nothing is left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from sbon_node.base.clock import Clock
from sbon_node.engine.interface import OperatorPort
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_node.hosting.standby.followers import Rehearsals
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from sbon_protocol.errors import SbonError
from tests.engine.states import States

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

SCHEMA = (Column("ts", "timestamp"), Column("k", "bigint"))
FRAGMENTS = {
    "filter": "SELECT ts, k FROM in0 WHERE k > 3",
    "windows": "SELECT window.start AS s, k, count(*) AS c FROM in0 GROUP BY window(ts, '2 seconds'), k",
    "join": "SELECT in0.ts, in1.ts AS other FROM in0 LEFT JOIN in1 ON in0.k = in1.k AND in1.ts BETWEEN in0.ts AND"
    " in0.ts + INTERVAL 3 SECONDS",
}


class Engine(SparkEngine):
    """Remembers the operators that have begun."""

    def __init__(self, folder: Path) -> None:
        super().__init__(EngineSettings(jit="c1", max_restarts=0), folder, Clock.real(), States())
        self.folder = folder / "operators"
        self.begun: list[str] = []

    async def instantiate(self, spec: OperatorSpec, port: OperatorPort, checkpoint: Path) -> None:
        self.begun.append(spec.id)
        await super().instantiate(spec, port, checkpoint)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    made = Engine(tmp_path_factory.mktemp("engine"))
    yield made
    await made.close()


def operator(name: str, fragment: str) -> OperatorSpec:
    views = (0, 1) if "in1" in fragment else (0,)
    event_time = "" if fragment == FRAGMENTS["filter"] else "ts"
    inputs = tuple(
        InputSpec(stream=f"{name}-{view}", node="n", schema=SCHEMA, view=view, event_time=event_time) for view in views
    )
    return OperatorSpec(id=name, query="q", fragment=fragment, inputs=inputs, schema=())


@pytest.mark.one_part_per_commit("kinds of rehearsed operators", parts=12)
@pytest.mark.parametrize("kind", FRAGMENTS)
async def test_each_kind_is_rehearsed_once(engine: Engine, kind: str) -> None:
    engine.begun.clear()
    rehearsals = Rehearsals(engine, Clock.real(), engine.folder, 200.0)
    spec = operator(f"q.{kind}", FRAGMENTS[kind])
    for one in (spec, operator("p.same", FRAGMENTS[kind]), replace(spec, state_provider="rocksdb")):
        await rehearsals.rehearse(one)
    assert engine.begun == [f"q.{kind}.rehearsal"] * 2
    assert [path for path in engine.folder.iterdir() if path.is_dir()] == []
    with pytest.raises(SbonError) as unknown:
        engine.cut(f"q.{kind}.rehearsal")
    assert unknown.value.code == "operator-unknown"


async def test_what_does_not_run_is_told_and_tried_again(engine: Engine) -> None:
    engine.begun.clear()
    rehearsals = Rehearsals(engine, Clock.real(), engine.folder, 200.0)
    for _ in range(2):
        with pytest.raises(SbonError):
            await rehearsals.rehearse(operator("q.bad", "SELECT missing FROM in0"))
    assert len(engine.begun) == 2
    assert [path for path in engine.folder.iterdir() if path.is_dir()] == []


async def test_without_time_only_the_engine_starts(engine: Engine) -> None:
    engine.begun.clear()
    await Rehearsals(engine, Clock.real(), engine.folder, 0.0).rehearse(operator("q.none", FRAGMENTS["filter"]))
    assert (engine.begun, engine.status) == ([], "running")
