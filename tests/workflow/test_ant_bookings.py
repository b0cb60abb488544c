"""Bookings of enforcement ants, whose claims nobody can check."""

from __future__ import annotations

import msgspec
import pytest

from tests.workflow.test_ant_steps import Held, enforcement, enforcing


@pytest.mark.parametrize(("cores", "rate_s"), [(0.0, 0.0), (0.05, 10.0), (0.1, 20.0), (0.5, 20.0)])
def test_an_ant_books_no_more_work_than_it_reserves_cores(cores: float, rate_s: float) -> None:
    """Twenty messages a second of 5 ms keep a tenth of a core busy; a stranger may claim any work."""
    node, ant = enforcing(Held(2)), enforcement()
    tasks = tuple(msgspec.structs.replace(task, cores=cores) for task in ant.chain.tasks)
    node.enforce(msgspec.structs.replace(ant, chain=msgspec.structs.replace(ant.chain, tasks=tasks)), "a", 0.0)
    (booking,) = node.bookings(0.0)
    assert booking.flow.rate_s == pytest.approx(rate_s)
