"""Ants within the limits of the protocol, as any member may send them: no step fails, and none grows what a node remembers."""

from __future__ import annotations

import itertools
import random
import warnings
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sbon_node.papers.ants.algorithm.cell import Cell
from sbon_node.papers.ants.network.service import MAX_BOOKINGS, Enforcing
from sbon_node.papers.ants.network.walk import Walk
from sbon_node.papers.ants.settings import AntSettings
from sbon_node.placement.model.queueing import Flow, Server, Service
from sbon_protocol.api.operators import Needs
from sbon_protocol.papers.ants import (
    AntChain,
    AntSite,
    AntTask,
    CellState,
    EnforceAnt,
    RouteAnt,
    RouteReturn,
    ScoutAnt,
    ScoutReturn,
    WithdrawAnt,
)
from tests.protocol.test_codec_properties import message_of

NAMES = st.sampled_from(["s", "m", "n", "d"])
KINDS = (RouteAnt, RouteReturn, ScoutAnt, ScoutReturn, EnforceAnt, WithdrawAnt, CellState)


@st.composite
def an_ant(draw: st.DrawFn) -> Any:
    """An ant whose path and sites fit together, since all others die at once; its numbers are arbitrary."""
    ant: Any = draw(st.sampled_from(KINDS).flatmap(message_of))
    fields: dict[str, Any] = {"sender": draw(NAMES)}
    if hasattr(ant, "round"):
        fields["round"] = draw(st.integers(0, 2))
    if hasattr(ant, "number"):
        fields["number"] = draw(st.integers(0, 1))
    if hasattr(ant, "path"):
        fields["path"] = draw(st.sampled_from([(), ("s",), ("s", "n"), ("s", "m", "n")]))
        fields["sender"] = fields["path"][-1] if fields["path"] else "s"
    if hasattr(ant, "destination"):
        fields |= {"source": "s" if fields["path"] else "m", "destination": draw(st.sampled_from(["m", "d"]))}
    if hasattr(ant, "chain"):
        source, destination = "m" if fields.get("path") == () else "s", draw(st.sampled_from(["m", "d"]))
        fields["chain"] = chain = msgspec.structs.replace(ant.chain, source=source, destination=destination, refused=())
        fields["sites"] = draw(sites_of(chain, whole=not isinstance(ant, ScoutAnt)))
    if isinstance(ant, EnforceAnt):
        fields |= {"at": draw(st.integers(0, 2)), "operators": tuple(f"b{i}" for i in range(len(ant.chain.tasks)))}
    return msgspec.structs.replace(ant, **fields)


@st.composite
def sites_of(draw: st.DrawFn, chain: AntChain, *, whole: bool) -> tuple[AntSite, ...]:
    last = len(chain.tasks) if whole else draw(st.integers(0, len(chain.tasks)))
    bounds = [0, *sorted(draw(st.sets(st.integers(1, max(1, last - 1)), max_size=2))), last] if last > 1 else [0, last]
    steps = [(first, end) for first, end in itertools.pairwise(bounds) if end > first]
    nodes = draw(st.permutations(["m", "n", "x", "d"]))
    made = [draw(message_of(AntSite)) for _ in steps]
    return tuple(
        msgspec.structs.replace(site, node=node, first=first, last=end)  # type: ignore[type-var]
        for site, node, (first, end) in zip(made, nodes, steps, strict=False)
    )


@pytest.mark.parametrize("field", ["scv", "batch"])
def test_a_task_of_any_size_is_refused(field: str) -> None:
    """The product of ten such numbers is more than a float holds."""
    task = AntTask(mean_ms=1.0, scv=1.0, batch=1.0, cores=0.1, memory_mb=1.0, bandwidth_bytes_s=1.0)
    assert msgspec.convert(msgspec.to_builtins(msgspec.structs.replace(task, **{field: 1e6})), AntTask)
    with pytest.raises(msgspec.ValidationError, match="<= 1000000"):
        msgspec.convert(msgspec.to_builtins(msgspec.structs.replace(task, **{field: 1e7})), AntTask)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(ants=st.lists(an_ant(), min_size=1, max_size=6))
def test_no_ant_makes_a_step_fail(ants: list[Any]) -> None:
    neighbours = {"s": 10.0, "n": 5.0, "d": 10.0}
    server = Server(flows=(Flow(rate_s=20.0, service=Service(mean_ms=10.0)),))
    cell = Cell("m", neighbours, lambda _, __: dict.fromkeys(neighbours, 1.0), server, Needs(cores=1e6, memory_mb=1e9))
    walk = Walk(cell, AntSettings(max_trails=4), random.Random(1), lambda one, other: 7.0 if one != other else 0.0)
    enforcing = Enforcing(cell, 60.0, lambda *_: None, lambda *_: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # Absurd states may overflow to infinity: such a node is no host.
        for now, ant in enumerate(ants):
            match ant:
                case EnforceAnt():
                    enforcing.enforce(ant, ant.sender, now)
                case WithdrawAnt():
                    enforcing.withdraw(ant)
                case CellState():
                    walk.tell(ant.sender, ant.state, now)
                case _:
                    walk.step(ant, ant.sender, now)
    assert len(walk.trails) <= 4
    assert len(walk.known(0.0)) <= 1 + len(neighbours)
    assert len(enforcing.bookings(0.0)) <= MAX_BOOKINGS
    for destination in cell.destinations:
        assert abs(sum(cell.table(destination, 0.0).phi.values()) - 1.0) < 1e-6
