"""A follower of this node, while its host may move the operator here."""

from __future__ import annotations

import asyncio

import msgspec

from sbon_node.hosting.hosted_operator import HostedOperator
from sbon_node.hosting.moving.ends import Frozen, Target
from sbon_protocol.api.moves import MoveProgress
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.errors import SbonError


class StoredArrival(msgspec.Struct, frozen=True, kw_only=True):
    """A follower as this node stores it; ``is_ready`` once it may be the operator's next host."""

    attempt: str
    origin: str
    hosted: HostedOperator
    is_ready: bool = False


class Arrival:
    """A follower of this node. After a restart it has no ``target``: it goes on from its checkpoint, or not at all."""

    def __init__(self, stored: StoredArrival, now_s: float) -> None:
        self.stored, self.heard_s = stored, now_s
        self.target: Target | None = None
        self.follows = self.is_live = self.is_settling = self.is_ending = False
        self.progress = MoveProgress()
        self.failure: SbonError | None = None
        self.frozen: Frozen | None = None
        self.going_live, self.ended = asyncio.Lock(), asyncio.Event()

    @property
    def spec(self) -> OperatorSpec:
        return self.stored.hosted.spec
