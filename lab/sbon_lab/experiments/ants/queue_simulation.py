"""Message-by-message simulation of a server's queue, to check the queueing model.

Flows arrive independently. The times between their messages are gamma-distributed, or hyperexponential where they are more
irregular than a Poisson process. Messages are served in order of arrival. A message passes through its flow's tasks. Each
task emits one of the two whole numbers of messages nearest to its batch size. Each run of a task takes a gamma-distributed
time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sbon_node.placement.model.queueing import Floats, Flow, Service, service_of

WARM_UP = 0.1
"""Share of the messages that the statistics omit."""


class SimulatedFlow(NamedTuple):
    """A flow with its ``tasks`` in sequence, each with its batch size."""

    rate_s: float
    tasks: Sequence[tuple[Service, float]]
    arrival_scv: float = 1.0

    def flow(self) -> Flow:
        return Flow(rate_s=self.rate_s, service=service_of(self.tasks), arrival_scv=self.arrival_scv)


def simulated_latency_ms(flows: Sequence[SimulatedFlow], speed: float, messages: int, rng: np.random.Generator) -> list[float]:
    """Return the mean latency of each flow's messages through the server, for about ``messages`` messages in all."""
    length_s = messages / sum(flow.rate_s for flow in flows)
    arrivals = [_arrivals(flow, length_s, rng) for flow in flows]
    takes = [_services(flow, len(times), rng) / speed for flow, times in zip(flows, arrivals, strict=True)]
    whose = np.repeat(np.arange(len(flows)), [len(times) for times in arrivals])
    order = np.argsort(np.concatenate(arrivals), kind="stable")
    came, took, whose = np.concatenate(arrivals)[order], np.concatenate(takes)[order], whose[order]
    change = np.concatenate([[0.0], took[:-1] - np.diff(came)])
    walk = np.cumsum(change)
    latency = walk - np.minimum.accumulate(walk) + took
    counted = np.arange(len(came)) >= WARM_UP * len(came)
    return [float(latency[counted & (whose == number)].mean()) for number in range(len(flows))]


def _arrivals(flow: SimulatedFlow, length_s: float, rng: np.random.Generator) -> Floats:
    """Return arrival times in milliseconds."""
    many, mean_ms = int(length_s * flow.rate_s), 1e3 / flow.rate_s
    if flow.arrival_scv <= 1.0:
        gaps = rng.gamma(1.0 / flow.arrival_scv, mean_ms * flow.arrival_scv, many)
    else:
        often = 0.5 * (1.0 + np.sqrt((flow.arrival_scv - 1.0) / (flow.arrival_scv + 1.0)))
        share = np.where(rng.random(many) < often, often, 1.0 - often)
        gaps = rng.exponential(mean_ms / (2.0 * share))
    times: Floats = np.cumsum(gaps)
    return times


def _services(flow: SimulatedFlow, many: int, rng: np.random.Generator) -> Floats:
    """Return each message's service time in milliseconds, at speed 1."""
    runs, times = np.ones(many, dtype=int), np.zeros(many)
    for service, batch in flow.tasks:
        if service.mean_ms > 0:
            spent = runs * service.mean_ms
            if service.scv > 0:
                spent = rng.gamma(np.maximum(runs, 1) / service.scv, service.mean_ms * service.scv) * (runs > 0)
            times += spent
        runs = runs * int(batch) + rng.binomial(runs, batch % 1.0)
    return times
