"""A sink as its host stores it, and the order that made it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sbon_node.ownership.consensus.states import Acceptor
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.queries import SinkSpec
from sbon_protocol.api.query_ids import is_further_sink
from sbon_protocol.calls import ClaimComponent


class SinkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Order to the consumer's node: deliver the streams ``inputs`` (stream, node) as ``spec`` says.

    A further sink has a ``claim`` from the query's record, and begins where ``begin`` says. One that is ``temporary`` is a
    follower's, and removed once that has left.
    Columns of the streams in ``by_position`` have other names: they are those of ``schema`` by their order.
    """

    query: str
    component: str
    inputs: tuple[tuple[str, str], ...]
    schema: Schema
    spec: SinkSpec
    epoch: int = 1
    by_position: tuple[str, ...] = ()
    claim: Annotated[str, Meta(pattern=r"^([0-9a-f]{16})?$")] = ""
    begin: Literal["", "earliest", "now"] = ""
    temporary: bool = False

    @property
    def is_further(self) -> bool:
        return is_further_sink(self.component)


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """Where a further sink begins: after these frames by stream; ``ended`` are the streams that end with theirs.

    ``rows`` is the number of rows of the result before.
    """

    frames: dict[str, int] = {}
    ended: tuple[str, ...] = ()
    rows: int = 0


class HostedSink(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of a sink, from which a restart resumes it.

    ``claim`` marks the sink's files as its own. It is ``taken_over`` if another node hosted it before. ``done`` holds the last
    frame that a follower has taken of each stream, ``rows`` the number of rows in them; ``ended`` are the streams whose last
    frame is among them. A further sink has begun at ``beginning``, None until that is known.
    """

    order: SinkOrder
    acceptors: tuple[Acceptor, ...]
    claim: str
    taken_over: bool = False
    done: dict[str, int] = {}
    ended: tuple[str, ...] = ()
    rows: int = 0
    beginning: Beginning | None = None

    def after(self, delivered: Mapping[str, int]) -> dict[str, int]:
        """Return the last frame of each stream that is done with: those ``delivered``, or else before the beginning."""
        return {**(self.beginning.frames if self.beginning is not None else {}), **delivered}


def claim_of(order: SinkOrder, rng: random.Random) -> str:
    """Return the word that marks everything made for the sink: every node that may take it over has it in the order."""
    return order.claim or (order.spec.claim if order.spec.failover else new_claim(rng))


def new_claim(rng: random.Random) -> str:
    return f"{rng.getrandbits(64):016x}"


def claim_call(hosted: HostedSink) -> ClaimComponent:
    """Return the claim of a host that was restarted."""
    order = hosted.order
    return ClaimComponent(query=order.query, component=order.component, epoch=order.epoch)
