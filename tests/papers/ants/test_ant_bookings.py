"""Bookings of enforcement ants, whose claims nobody can check."""

from __future__ import annotations

import msgspec
import pytest

from sbon_node.placement.model.queueing import Flow, Service
from tests.papers.ants.test_ant_steps import Held, enforcement, enforcing


@pytest.mark.parametrize(("cores", "rate_s"), [(0.0, 0.0), (0.05, 10.0), (0.1, 20.0), (0.5, 20.0)])
def test_an_ant_books_no_more_work_than_it_reserves_cores(cores: float, rate_s: float) -> None:
    """Twenty messages a second of 5 ms keep a tenth of a core busy; a stranger may claim any work."""
    node, ant = enforcing(Held(2)), enforcement()
    tasks = tuple(msgspec.structs.replace(task, cores=cores) for task in ant.chain.tasks)
    node.enforce(msgspec.structs.replace(ant, chain=msgspec.structs.replace(ant.chain, tasks=tasks)), "a", 0.0)
    (booking,) = node.bookings(0.0)
    assert booking.flow.rate_s == pytest.approx(rate_s)


@pytest.mark.parametrize(("load", "accepted"), [(0.01, True), (0.1, True), (0.7, False)])
def test_a_node_refuses_when_its_queue_has_grown_but_not_for_noise(load: float, accepted: bool) -> None:
    """A scout saw an idle node and tasks of unknown work: it reported 0 ms. Any wait is more than a tenth of that."""
    node, ant = enforcing(Held(1), Flow(rate_s=load * 100.0, service=Service(mean_ms=10.0))), enforcement(own_ms=0.0)
    idle = tuple(msgspec.structs.replace(task, mean_ms=0.0) for task in ant.chain.tasks)
    sent = node.enforce(msgspec.structs.replace(ant, chain=msgspec.structs.replace(ant.chain, tasks=idle)), "a", 0.0)
    assert [one.to for one in sent] == (["z"] if accepted else ["a", "s"])
    assert len(node.bookings(0.0)) == accepted
