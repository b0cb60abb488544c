"""The delay from source to sink, measured with clocks that are hours apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.overlay.membership.clocks import PeerClocks
from sbon_node.queries.describing.describe import stated_delay
from sbon_protocol.api.delivery import SinkDelay
from sbon_protocol.api.measures import InputMeasures, OperatorMeasures
from sbon_protocol.api.operators import PlannedInput
from sbon_protocol.api.plan import Plan, PlannedOperator, PlannedSource, Rate
from sbon_protocol.api.queries import OperatorInfo
from tests.nodes.clusters import declare, in_cluster, source_at, state_of, submitted
from tests.nodes.test_moved_operators import FILTER, move, operators

HOUR_S = 3600.0
SKEWS = {"a": HOUR_S, "b": -HOUR_S, "c": HOUR_S / 2}


def delays(path: Path, skews: dict[str, float], *, moves: bool) -> SinkDelay:
    """The delay of a query from ``b`` by way of an operator, which may move to ``c``, to ``a``."""
    found: list[SinkDelay | None] = []

    async def test(cluster: SimulatedCluster) -> None:
        for name, seconds in skews.items():
            cluster.nodes[name].skew(seconds)
        await declare(cluster, "a", source_at("b", rows=4000, rate=40.0))
        await submitted(cluster, "a", path / "out.csv", sql=FILTER, strategy="producer")
        await cluster.sleep(12.0)
        if moves:
            assert (await move(cluster, operators(cluster)[-1], "b", "c")).step == "moved"
        await cluster.sleep(12.0)
        found.append((await state_of(cluster, "a")).delay)

    in_cluster(path, "abc", test)
    (delay,) = found
    assert delay is not None
    return delay


@pytest.mark.parametrize("moves", [False, True])
def test_the_delay_is_right_within_its_error_with_clocks_hours_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    """The truth is a run in which all clocks are the same and their times are taken as they are."""
    measured = delays(tmp_path / "apart", SKEWS, moves=moves)
    own_ms = PeerClocks.own_ms

    def exact(clocks: PeerClocks, stated_ms: int, name: str) -> int:
        own_ms(clocks, stated_ms, name)  # with the same pings
        return stated_ms

    monkeypatch.setattr(PeerClocks, "own_ms", exact)
    truth = delays(tmp_path / "same", {}, moves=moves)
    assert truth.p50_ms is not None
    assert truth.p95_ms is not None
    assert 0 < truth.p50_ms <= truth.p95_ms < 2_000
    assert measured.frames > 50
    assert measured.undated <= 5, "clocks are known soon"
    assert measured.error_ms is not None
    assert measured.error_ms < 500
    assert measured.p50_ms == pytest.approx(truth.p50_ms, abs=measured.error_ms)
    assert measured.p95_ms == pytest.approx(truth.p95_ms, abs=measured.error_ms)


SOURCES = (source_at("b"), source_at("c"))
STREAMS = {"s1": SOURCES[0].id, "s2": SOURCES[1].id}


def inputs_of(streams: tuple[str, ...]) -> tuple[PlannedInput, ...]:
    return tuple(PlannedInput(stream=STREAMS.get(one, one), schema=()) for one in streams)


def reported(operator: str, **errors_ms: float | None) -> OperatorInfo:
    """An operator that knows the clocks of its inputs' hosts with these errors."""
    inputs = tuple(InputMeasures(stream=STREAMS.get(one, one), clock_error_ms=error_ms) for one, error_ms in errors_ms.items())
    return OperatorInfo(id=operator, node="n", fragment="", state="running", measures=OperatorMeasures(inputs=inputs))


@pytest.mark.parametrize(
    "operators_, expected",
    [
        ([reported("o1", s1=2.0, s2=5.0), reported("o2", o1=3.0, s2=1.0)], 1.0 + 3.0 + 5.0),
        ([reported("o1", s1=2.0, s2=5.0), reported("o2", o1=3.0, s2=40.0)], 1.0 + 40.0),
        ([reported("o1", s1=2.0, s2=None), reported("o2", o1=3.0, s2=1.0)], None),
        ([reported("o2", o1=3.0, s2=1.0)], None),
    ],
)
def test_errors_of_clocks_add_up_along_the_worst_path(operators_: list[OperatorInfo], expected: float | None) -> None:
    rate = Rate(rows_s=1.0, bytes_s=1.0)
    read = (("o1", ("s1", "s2")), ("o2", ("o1", "s2")))
    plan = Plan(
        text="",
        sources=tuple(PlannedSource(source=one, schema=(), rate=rate) for one in SOURCES),
        operators=tuple(
            PlannedOperator(id=one, fragment="", inputs=inputs_of(streams), schema=(), rate=rate) for one, streams in read
        ),
        outputs=("o2",),
        schema=(),
    )
    delay = stated_delay(plan, operators_, SinkDelay(frames=1, p50_ms=1.0, p95_ms=1.0, error_ms=1.0))
    assert delay is not None
    assert delay.error_ms == expected
