"""The network as the placing node knows it or can probe it.

The daemon and experiments share the interface. Coordinates age: a view returns the last coordinate it heard and its age, and none
of a node that has gone.
"""

import math
import random
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from sbon_node.placement.model.queueing import Server
from sbon_protocol.api.operators import Needs
from sbon_protocol.base import Call
from sbon_protocol.errors import SbonError
from sbon_protocol.papers.sand import PlacedOperators

Point = tuple[float, ...]
"""Coordinates in the latency dimensions of the cost space; milliseconds."""

T = TypeVar("T")

NOTHING = Needs(cores=0.0, memory_mb=0.0)

UNKNOWN_MS = 1e6
"""An unknown latency or distance. It exceeds every other, so that no node is preferred because nothing is known."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A node's answer to a capacity probe; a probe reserves nothing.

    ``operators`` are those that the node hosts. ``free`` is the capacity it has left, None where it did not say. ``load`` is its
    load average per core, and ``other_load`` the part of it of which no flows are known, None where it did not say. ``server``
    holds its speed and flows, None where it does not publish them.
    """

    accepted: bool
    reason: str = ""
    operators: tuple[str, ...] = ()
    free: Needs | None = None
    load: float = 0.0
    other_load: float | None = None
    server: Server | None = None

    @property
    def capacity(self) -> Needs:
        """The capacity to count on: none where the node did not say."""
        return NOTHING if self.free is None else self.free


class Sent(NamedTuple):
    """A message to a coordinator (:mod:`sbon_protocol.papers.sand`) and the node it goes to."""

    node: str
    message: Call


Answered = PlacedOperators | SbonError | None
"""A coordinator's answer: the operators placed because of the message, or why there is none; None where nothing is to say."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that a resource discovery looks for.

    These have capacity for ``needs``, at least ``least_cores`` and less than ``below_cores`` free cores, and a one-way latency of
    at most ``within_ms`` to a node of ``near``. If there are more than ``most``, the nearest count.
    """

    needs: Needs
    least_cores: float = 0.0
    below_cores: float = math.inf
    near: tuple[str, ...] = ()
    within_ms: float = math.inf
    most: int = 512


class NetworkView(Protocol):
    """Knowledge of the network. Reading it is free; a probe of a node and a measurement of a pair count one probe each."""

    @property
    def rng(self) -> random.Random: ...

    @property
    def probes(self) -> int:
        """Number of probes so far."""

    def nodes(self) -> list[str]:
        """Return all nodes that may host operators, sorted by name."""

    def coordinate(self, node: str) -> Point | None:
        """Return the node's last known coordinate, None where it has published none."""

    def coordinate_age_s(self, node: str) -> float | None:
        """Return the seconds since that coordinate was heard; None where none was."""

    def load_ms(self, node: str) -> float:
        """Return the node's place in the load dimension of the cost space: as it has answered, else as it was heard last."""

    def nearest(self, point: Sequence[float], k: int, *, exclude: Collection[str] = ()) -> list[tuple[str, float]]:
        """Return at most ``k`` nodes, nearest first, with their distance to ``point``: ms, with height and load."""

    def latency_ms(self, a: str, b: str) -> float:
        """Return the one-way latency of two nodes: the fresh measurement, else the estimate, ``UNKNOWN_MS`` without either."""

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """Measure one-way latencies; one node of each pair sends the pings.

        Each pair without a fresh latency counts one probe. Pairs that could not be measured are missing from the result, because
        a node may be away; from then on :meth:`latency_ms` returns the measurements of the others.

        Raises :class:`sbon_protocol.errors.SbonError` where the limit on measurements is reached.
        """

    def latencies_ms(self, sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.float64]:
        """Return :meth:`latency_ms` of all pairs, shape [sources, targets]; 0 between a node and itself."""

    def route(self, source: str, target: str) -> list[str] | None:
        """Return the nodes that packets pass from ``source`` to ``target``, both included; None if unknown."""

    def parent(self, node: str) -> str | None:
        """Return the node's configured parent; None where it has none."""

    def owner(self, key: str, exclude: Collection[str] = ()) -> str:
        """Return the node that owns a key, as all members agree: the first owner not in ``exclude``, or else the last one."""

    async def send_all(self, sent: Sequence[Sent], within_s: float) -> list[Answered]:
        """Send messages to coordinators at once, and return their answers, in order."""

    def overlay_route(self, source: str, target: str) -> list[str]:
        """Return the nodes that a message passes from ``source`` to ``target``, both included.

        Messages follow prefixes and near neighbours (:mod:`sbon_node.overlay.directory.view`). The route comes from
        local knowledge, without probes.
        """

    async def ask(self, node: str, needs: Needs) -> Answer:
        """Ask whether ``node`` could host an operator with these needs; an unreachable node counts as a refusal."""

    async def ask_all(self, nodes: Sequence[str], needs: Needs) -> dict[str, Answer]:
        """Ask all nodes at once."""

    async def discover(self, window: Window) -> dict[str, Answer]:
        """Return the nodes of a window, with the capacity each has left; each node not asked before costs a probe."""

    @property
    def discoveries(self) -> int:
        """Number of discoveries so far."""

    async def compute(self, work: Callable[[], T], /) -> T:
        """Return or raise what ``work`` does; for work of more than some milliseconds.

        A daemon answers others meanwhile, so ``work`` uses nothing that may change: neither this view nor what others hold.
        """

    async def pause(self) -> None:
        """Let other tasks run. Strategies that compute much between probes call it often."""


def loads_above_least(view: NetworkView, nodes: Collection[str]) -> dict[str, float]:
    """Return the nodes' places in the load dimension above that of the least loaded of them; milliseconds.

    A load that all share is no reason for any of them: nodes of one machine have the load of that machine.
    """
    loads_ms = {node: view.load_ms(node) for node in nodes}
    least_ms = min(loads_ms.values(), default=0.0)
    return {node: load_ms - least_ms for node, load_ms in loads_ms.items()}
