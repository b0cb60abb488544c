"""How long messages take through a server: the queueing model of ANTS (section 3.6, equations 3 to 10).

A server has one queue. What enters it is a *flow*: a message that comes from elsewhere is passed through all tasks of its query
that follow each other there, and then the next message is taken. The flows of a server are aggregated to a single stream
(Whitt, The Queueing Network Analyzer, 1983), the wait of which is that of a G/G/1 queue. As printed, equation 9 is not
Marchal's formula but the one that is mostly credited to Allen and Cunneen; it is what is built here. Where messages arrive as a
Poisson process it is exact (Pollaczek, Khinchine). Beside simulated queues, the latency of a flow is within 10 % at loads up to
0.9, as long as the squared coefficient of variation of the flows' arrivals is between 0.8 and 2; of several flows that are more
regular it says too much, as equation 6 takes their sum for more irregular than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.service import Service as Service

Floats = NDArray[np.float64]

MAX_LOAD = 0.95
"""A server with more to do than this share of its time is overloaded."""
BUSIEST = 0.8
"""What a machine is taken to be busy with of which no more is known than its load average: work that waits there is no reason to
refuse all other work, which the machine will share its time among."""
OVERLOADED_MS = 1e6
"""What waiting at an overloaded server is reckoned with, for each unit of load: the less overloaded is the better one."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that enter a server: how many a second, how irregularly (squared coefficient of variation of the times between
    them, 1 for a Poisson process), and what one of them takes there at speed 1, everything that follows from it included."""

    rate_s: float
    service: Service
    arrival_scv: float = 1.0


def spread(batch: float) -> float:
    """The variance of the number of messages out for one in, of which ``batch`` is the mean: one of the two whole numbers that
    are nearest to it."""
    part = batch % 1.0
    return part * (1.0 - part)


def service_of(tasks: Sequence[tuple[Service, float]]) -> Service:
    """Of tasks in a row, each with its batch size, B (messages out for one in): equation 3, S_f = sum S_i prod B_j, and the
    variance that goes with it, which the paper leaves open."""
    mean, variance = 0.0, 0.0
    for service, batch in reversed(tasks):
        variance = service.scv * service.mean_ms**2 + batch * variance + spread(batch) * mean**2
        mean = service.mean_ms + batch * mean
    return Service(mean_ms=mean, scv=variance / mean**2 if mean else 1.0)


class Traffic(NamedTuple):
    """The flows of a server as the sums that equations 4 to 8 need, or of many servers at once: arrays of one shape, [] of one
    server. Sums of two traffics are those of all their flows."""

    flows: Floats
    """How many."""
    rate_s: Floats
    """lambda: messages a second."""
    load: Floats
    """rho: sum of lambda_f / mu_f."""
    service_ms: Floats
    """Sum of S_f."""
    squares: Floats
    """Sum of lambda_f (c_sf^2 + 1) / mu_f^2; seconds."""
    rate_squares: Floats
    """Sum of lambda_f^2."""
    burstiness: Floats
    """Sum of c_af^2 lambda_f."""

    def plus(self, other: Traffic) -> Traffic:
        return Traffic(*(one + two for one, two in zip(self, other, strict=True)))

    def at(self, index: object) -> Traffic:
        """Of some of the servers."""
        return Traffic(*(one[index] for one in self))  # type: ignore[call-overload]


def no_traffic(*shape: int) -> Traffic:
    return Traffic(*(np.zeros(shape) for _ in Traffic._fields))


def traffic_of(flow: Flow, speed: Floats | float = 1.0) -> Traffic:
    """Of one flow at servers of ``speed`` [..]."""
    return traffic(flow.rate_s, flow.service.mean_ms / speed, flow.service.scv, flow.arrival_scv)


def traffic(
    rate_s: Floats | float, service_ms: Floats | float, service_scv: Floats | float, arrival_scv: Floats | float = 1.0
) -> Traffic:
    """Of one flow for each server, with what a message takes there; all broadcast to one shape."""
    rate, ms, scv, arrivals = np.broadcast_arrays(
        *(np.asarray(x, dtype=float) for x in (rate_s, service_ms, service_scv, arrival_scv))
    )
    return Traffic(
        flows=np.ones(rate.shape),
        rate_s=rate,
        load=rate * ms / 1e3,
        service_ms=ms,
        squares=rate * (ms / 1e3) ** 2 * (scv + 1.0),
        rate_squares=rate**2,
        burstiness=rate * arrivals,
    )


def waiting_ms(traffic: Traffic) -> Floats:
    """Q, what a message waits in the queue (equations 4 to 9), in milliseconds; ``OVERLOADED_MS`` x the load beyond
    ``MAX_LOAD``."""
    rate, load = np.maximum(traffic.rate_s, 1e-12), np.minimum(traffic.load, MAX_LOAD)
    mean_s = traffic.load / rate
    service_scv = np.maximum(traffic.squares / rate / np.maximum(mean_s, 1e-12) ** 2 - 1.0, 0.0)
    streams = rate**2 / np.maximum(traffic.rate_squares, 1e-24)
    weight = 1.0 / (1.0 + 4.0 * (1.0 - load) ** 2 * np.maximum(streams - 1.0, 0.0))
    arrival_scv = (1.0 - weight) + weight * traffic.burstiness / rate
    waited = 1e3 * load / (1.0 - load) * (arrival_scv + service_scv) / 2.0 * mean_s
    found: Floats = np.where(traffic.load > MAX_LOAD, OVERLOADED_MS * traffic.load, waited)
    return found


def latency_ms(flow: Flow, speed: Floats | float, others: Traffic) -> Floats:
    """L_f = Q_f + S_f (equation 10) of ``flow`` at servers [..] that have ``others`` to serve beside it."""
    found: Floats = waiting_ms(others.plus(traffic_of(flow, speed))) + flow.service.mean_ms / speed
    return found


def delayed_ms(flow: Flow, speed: Floats | float, others: Traffic) -> Floats:
    """By how much ``flow`` makes a message of each of the others wait longer, summed over these (section 3.7)."""
    found: Floats = others.flows * (waiting_ms(others.plus(traffic_of(flow, speed))) - waiting_ms(others))
    return found


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the model sees it: how many times as fast as a processor of speed 1, and the flows it serves."""

    speed: float = 1.0
    flows: tuple[Flow, ...] = ()

    def traffic(self) -> Traffic:
        found = no_traffic()
        for flow in self.flows:
            found = found.plus(traffic_of(flow, self.speed))
        return found


def side_by_side(servers: Sequence[Server]) -> tuple[Floats, Traffic]:
    """Their speeds [n] and their traffic [n]."""
    each = [server.traffic() for server in servers]
    return np.array([server.speed for server in servers]), Traffic(*(np.array(part) for part in zip(*each, strict=True)))


def busy(load: float, service_ms: float, speed: float = 1.0) -> Server:
    """One of which no more is known than its load, 1 for as much as it has cores: it is taken to serve one flow, of messages that
    take ``service_ms`` at speed 1, and to have a little time left."""
    if load <= 0 or service_ms <= 0:
        return Server(speed=speed)
    rate_s = 1e3 * min(load, BUSIEST) * speed / service_ms
    return Server(speed=speed, flows=(Flow(rate_s=rate_s, service=Service(mean_ms=service_ms)),))
