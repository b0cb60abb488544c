"""What a node that places operators may know of the network, or ask: the same face for the daemon and for experiments.

Coordinates age: a view tells the last one heard and how old it is, and none of a node that has gone."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from sbon_node.engine.interface import Needs
from sbon_node.placement.queueing import Server

Point = tuple[float, ...]
"""A place in the latency dimensions of the cost space; milliseconds."""

T = TypeVar("T")

NOTHING = Needs(cores=0.0, memory_mb=0.0)

UNKNOWN_MS = 1e6
"""Stands for a way, or a distance, of which nothing is known: longer than any other, so that nobody is preferred for it."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says when asked whether it could host an operator; nothing is reserved by asking.

    ``operators`` are those it hosts, ``free`` what it has left, None where it did not say, ``load`` its load average per core;
    ``server`` what it serves in detail, where it tells that.
    """

    accepted: bool
    reason: str = ""
    operators: tuple[str, ...] = ()
    free: Needs | None = None
    load: float = 0.0
    server: Server | None = None

    @property
    def room(self) -> Needs:
        """What may be counted on: nothing where it did not say."""
        return NOTHING if self.free is None else self.free


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a resource discovery looks for: nodes with room for ``needs`` of whose cores at least ``least_cores`` and less than
    ``below_cores`` are free, at most ``within_ms`` (one way) from one of ``near``; of many the ``most`` that are nearest."""

    needs: Needs
    least_cores: float = 0.0
    below_cores: float = math.inf
    near: tuple[str, ...] = ()
    within_ms: float = math.inf
    most: int = 512


class NetworkView(Protocol):
    """Knowledge is free; asking a node is one question, and so is measuring a pair of nodes."""

    @property
    def rng(self) -> random.Random: ...

    @property
    def questions(self) -> int:
        """Questions asked of nodes so far."""
        ...

    def nodes(self) -> list[str]:
        """Every node that may host operators, sorted by name."""
        ...

    def coordinate(self, node: str) -> Point | None:
        """The node's last known place, None where it has told none yet."""
        ...

    def coordinate_age_s(self, node: str) -> float | None:
        """Seconds since that place was heard; None where none has been."""
        ...

    def nearest(self, point: Sequence[float], k: int, *, exclude: Collection[str] = ()) -> list[tuple[str, float]]:
        """At most ``k`` nodes, nearest first, with their distance to ``point`` (ms; height and load included)."""
        ...

    def latency_ms(self, a: str, b: str) -> float:
        """One-way latency between two nodes: measured where that is fresh, else estimated; ``UNKNOWN_MS`` where neither is."""
        ...

    async def measure(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """One-way latencies, measured by one of each pair; a question each, where nothing fresh is known. Those that could not be
        measured are missing, for a node may be away; :meth:`latency_ms` tells the others from then on.

        Raises :class:`sbon_node.errors.SbonError` where so much may not be measured now.
        """
        ...

    def latencies_ms(self, sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.float64]:
        """:meth:`latency_ms` from each to each, shape [sources, targets]; 0 between a node and itself."""
        ...

    def route(self, source: str, target: str) -> list[str] | None:
        """The nodes that packets pass from ``source`` to ``target``, both included; None where routes are not known."""
        ...

    def parent(self, node: str) -> str | None:
        """The node it is configured to hang from; None where it names none."""
        ...

    def owner(self, key: str) -> str:
        """The node that owns a key, as all who know the same members say."""
        ...

    def overlay_route(self, source: str, target: str) -> list[str]:
        """The nodes a message passes from ``source`` to ``target`` by prefixes and near neighbours, both included (see
        :mod:`sbon_node.directory.prefix_routing`); as far as is known here, nobody is asked."""
        ...

    async def ask(self, node: str, needs: Needs) -> Answer:
        """Could ``node`` host an operator of these needs? A node that is out of reach answers no, with that reason."""
        ...

    async def ask_all(self, nodes: Sequence[str], needs: Needs) -> dict[str, Answer]:
        """Asks all of them at once."""
        ...

    async def discover(self, window: Window) -> dict[str, Answer]:
        """The nodes of a window, with what each has free. Whom an earlier discovery has asked is not asked again; each other one
        is a question."""
        ...

    @property
    def discoveries(self) -> int:
        """Discoveries so far."""
        ...

    async def compute(self, work: Callable[[], T], /) -> T:
        """What ``work`` returns or raises: for what may take more than some milliseconds. A daemon answers others meanwhile, so
        ``work`` uses nothing that may change: neither this view nor what others hold."""
        ...

    async def pause(self) -> None:
        """Lets others have their turn: for strategies that reckon much between questions, a little at a time."""
        ...
