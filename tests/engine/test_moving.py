"""An operator moves from one Spark engine to another amid a live stream, and no row is lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from sbon_lab.migration.feed import Feed
from sbon_lab.migration.kinds import KINDS
from sbon_lab.migration.moving import Host, MovingOperator
from sbon_node.base.clock import Clock
from sbon_node.engine.settings import EngineSettings
from sbon_protocol.api.operators import StateProvider
from sbon_protocol.errors import SbonError
from tests.engine.states import PATIENCE_S

pytestmark = [pytest.mark.live, pytest.mark.only_in_test_all("moves of operators between engines, of which live nodes make one")]
in_one_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hosts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Host, Host]]:
    folder = tmp_path_factory.mktemp("moving")
    settings = EngineSettings(jit="c1", max_restarts=0, start_timeout_s=900, settle_s=PATIENCE_S)
    made = (Host("left", folder / "left", Clock.real(), settings), Host("right", folder / "right", Clock.real(), settings))
    yield made
    for host in made:
        await host.engine.close()


@asynccontextmanager
async def running(
    name: str, kind: str, folder: Path, host: Host, provider: StateProvider = "hdfs"
) -> AsyncIterator[MovingOperator]:
    operator = MovingOperator(
        name, KINDS[kind], folder / name, host, Feed(), Clock.real(), patience_s=PATIENCE_S, state_provider=provider
    )
    try:
        await operator.open()
        await operator.until(lambda: len(operator.arrivals) > 2)
        yield operator
    finally:
        await operator.close()


async def some_more(operator: MovingOperator, frames: int = 5) -> None:
    upto = len(operator.arrivals) + frames
    await operator.until(lambda: len(operator.arrivals) >= upto)


def subscribers(operator: MovingOperator, view: int = 0) -> list[str]:
    return sorted(operator.near.outbox.link_counts(operator.streams[view]).links)


@in_one_loop
@pytest.mark.parametrize(
    ("kind", "provider"),
    [
        *((kind, "hdfs") for kind in KINDS),
        ("left-join", "rocksdb"),
    ],
)
async def test_an_operator_goes_on_at_another_engine_and_returns(
    hosts: tuple[Host, Host], tmp_path: Path, kind: str, provider: StateProvider
) -> None:
    async with running(f"{kind}-{provider}", kind, tmp_path, hosts[0], provider) as operator:
        for host in (hosts[1], hosts[0]):
            _, frozen = await operator.move(host)
            await some_more(operator)
            assert operator.at.host is host
            assert operator.arrivals[-1].number > frozen.stream.tail.last > 2
        assert await operator.end() == (0, 0)
        assert [arrival.number for arrival in operator.arrivals] == list(range(1, len(operator.arrivals) + 1))
        assert subscribers(operator) == [f"{operator.name}#0"]


@in_one_loop
async def test_a_switch_without_alignment_is_refused(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """The origin stops before the batch that releases what its watermark allows; the target has run it."""
    async with running("unaligned", "left-join", tmp_path, hosts[0]) as operator:
        move = await operator.follow(hosts[1])
        while True:
            move.target.repeat(move.origin.halt())
            frozen = await move.origin.freeze()
            if not frozen.cut.is_settled:
                break
            move.origin.thaw()
            await asyncio.sleep(0.03)
        engine = hosts[1].engine
        move.place.port.limit(frozen.cut.frames, rests=True)
        await operator.until(lambda: (cut := engine.cut(operator.name)) is not None and cut.frames == frozen.cut.frames)
        await operator.until(lambda: (cut := engine.cut(operator.name)) is not None and cut.is_settled)
        with pytest.raises(SbonError) as refusal:
            await move.target.settle(frozen)
        assert refusal.value.code == "not-aligned"
        await operator.give_up(move)
        assert await operator.end() == (0, 0)


@in_one_loop
async def test_a_move_that_is_given_up_changes_nothing(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    async with running("given-up", "tumbling", tmp_path, hosts[0]) as operator:
        move = await operator.follow(hosts[1])
        await operator.settle(move)
        await operator.give_up(move)
        await some_more(operator)
        assert operator.at.host is hosts[0]
        assert await operator.end() == (0, 0)
        assert subscribers(operator) == [f"{operator.name}#0"]


@in_one_loop
async def test_an_operator_is_stopped_copied_and_started(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    async with running("stopped", "left-join", tmp_path, hosts[0]) as operator:
        last = await operator.stop_copy_start(hosts[1])
        await some_more(operator)
        assert operator.arrivals[-1].number > last > 2
        assert await operator.end() == (0, 0)
