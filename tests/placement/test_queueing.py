"""The queueing model against formulas that are exact, and against a queue simulated message by message."""

from __future__ import annotations

import numpy as np
import pytest

from sbon_lab.experiments.ants.chain_optimum import delayed_ms
from sbon_lab.experiments.ants.queue_simulation import SimulatedFlow, simulated_latency_ms
from sbon_node.placement.model.queueing import (
    MAX_LOAD,
    OVERLOADED_MS,
    Flow,
    Server,
    Service,
    busy,
    latency_ms,
    no_traffic,
    service_of,
    side_by_side,
    spread,
    traffic_of,
    waiting_ms,
)


def test_poisson_arrivals_are_exact() -> None:
    """Pollaczek and Khinchine: L = S + rho S (1 + c^2) / (2 (1 - rho))."""
    for scv in (0.0, 0.5, 1.0, 3.0):
        flow = Flow(rate_s=80.0, service=Service(mean_ms=10.0, scv=scv))
        assert float(latency_ms(flow, 1.0, no_traffic())) == pytest.approx(10 + 0.8 * 10 * (1 + scv) / (2 * 0.2))
        assert float(latency_ms(flow, 2.0, no_traffic())) == pytest.approx(5 + 0.4 * 5 * (1 + scv) / (2 * 0.6))


def test_the_service_of_tasks_in_a_row_is_equation_3() -> None:
    a, b, c = (Service(mean_ms=ms, scv=scv) for ms, scv in ((2.0, 0.5), (5.0, 0.0), (1.0, 1.0)))
    whole = service_of([(a, 0.5), (b, 3.0), (c, 7.0)])
    assert whole.mean_ms == pytest.approx(2 + 0.5 * 5 + 0.5 * 3 * 1)
    rest_mean, rest_variance = 5 + 3 * 1.0, 0.0 + 3 * 1.0
    variance = 0.5 * 4 + 0.5 * rest_variance + 0.25 * rest_mean**2
    assert whole.scv * whole.mean_ms**2 == pytest.approx(variance)
    assert [spread(batch) for batch in (0.0, 0.5, 1.0, 2.25)] == [0.0, 0.25, 0.0, 0.1875]


def test_a_task_that_takes_next_to_no_time_has_a_service_too() -> None:
    """The square of its mean is zero."""
    assert service_of([(Service(mean_ms=1e-200, scv=3.0), 1.0)]) == Service(mean_ms=1e-200, scv=1.0)


def test_aggregation_is_equations_4_to_9() -> None:
    flows = [
        Flow(rate_s=20.0, service=Service(mean_ms=10.0, scv=0.5), arrival_scv=2.0),
        Flow(rate_s=60.0, service=Service(mean_ms=5.0, scv=1.0), arrival_scv=0.5),
    ]
    rate, load = 0.08, 0.02 * 10 + 0.06 * 5
    mu = rate / load
    service_scv = mu**2 / rate * (0.02 * 100 * 1.5 + 0.06 * 25 * 2.0) - 1
    v = 1 / ((0.02 / rate) ** 2 + (0.06 / rate) ** 2)
    w = 1 / (1 + 4 * (1 - load) ** 2 * (v - 1))
    arrival_scv = (1 - w) + w * (2.0 * 0.02 / rate + 0.5 * 0.06 / rate)
    waited = load / (1 - load) * (arrival_scv + service_scv) / 2 / mu
    others = traffic_of(flows[1])
    assert float(waiting_ms(others.plus(traffic_of(flows[0])))) == pytest.approx(waited)
    assert float(latency_ms(flows[0], 1.0, others)) == pytest.approx(waited + 10)
    before = float(waiting_ms(others))
    assert float(delayed_ms(flows[0], 1.0, others)) == pytest.approx(waited - before)
    speeds, traffic = side_by_side([Server(flows=tuple(flows)), Server(speed=4.0), busy(0.6, 5.0, 2.0)])
    assert speeds.tolist() == [1.0, 4.0, 1.0 * 2]
    assert waiting_ms(traffic).tolist() == pytest.approx([waited, 0.0, 0.6 / 0.4 * 2.5])
    assert traffic.load.tolist() == pytest.approx([load, 0.0, 0.6])


def test_beyond_the_greatest_load_the_less_overloaded_is_the_better() -> None:
    loads = [MAX_LOAD - 0.01, MAX_LOAD + 0.01, 1.5, 3.0]
    waits = [float(waiting_ms(traffic_of(Flow(rate_s=100 * load, service=Service(mean_ms=10.0))))) for load in loads]
    assert waits == sorted(waits)
    assert waits[0] < 1000 < OVERLOADED_MS * MAX_LOAD < waits[1]


@pytest.mark.parametrize("arrival_scv", [0.8, 1.0, 2.0])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_a_simulated_queue_is_within_a_tenth(load: float, arrival_scv: float) -> None:
    rng = np.random.default_rng((int(100 * load), int(100 * arrival_scv)))
    flows = [
        SimulatedFlow(20.0, [(Service(mean_ms=8.0, scv=0.3), 0.5), (Service(mean_ms=4.0, scv=1.0), 1.0)], arrival_scv),
        SimulatedFlow(30.0, [(Service(mean_ms=3.0, scv=0.0), 1.5), (Service(mean_ms=2.0, scv=1.0), 1.0)], arrival_scv),
        SimulatedFlow(50.0, [(Service(mean_ms=5.0, scv=1.0), 1.0)], arrival_scv),
    ]
    speed = sum(float(traffic_of(flow.flow()).load) for flow in flows) / load
    simulated = simulated_latency_ms(flows, speed, 400_000, rng)
    for number, flow in enumerate(flows):
        others = no_traffic()
        for other in flows[:number] + flows[number + 1 :]:
            others = others.plus(traffic_of(other.flow(), speed))
        assert float(latency_ms(flow.flow(), speed, others)) == pytest.approx(simulated[number], rel=0.1)


def test_the_simulated_queue_is_the_one_of_the_textbooks() -> None:
    """M/M/1 at a load of 0.8, and what no formula here says of a D/M/1 queue: much less than a Poisson process waits."""
    rng = np.random.default_rng(3)
    poisson = SimulatedFlow(80.0, [(Service(mean_ms=10.0), 1.0)])
    assert simulated_latency_ms([poisson], 1.0, 2_000_000, rng)[0] == pytest.approx(50.0, rel=0.05)
    regular = SimulatedFlow(80.0, [(Service(mean_ms=10.0), 1.0)], 1e-6)
    assert simulated_latency_ms([regular], 1.0, 500_000, rng)[0] == pytest.approx(10 / (1 - 0.6286), rel=0.05)
