"""Components of queries as their host stores them: operators and sinks, with the acceptors of their records, and folders."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from sbon_node.context import Context, logged, until_passed
from sbon_node.ownership.consensus.states import Acceptor
from sbon_protocol.api.catalogue import is_source
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OperatorSpec, OperatorStats
from sbon_protocol.api.queries import OperatorInfo, SinkSpec
from sbon_protocol.api.query_ids import is_further_sink
from sbon_protocol.api.states import operator_states
from sbon_protocol.calls import ClaimComponent, ReportState
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError, SbonError


class HostedComponent(NamedTuple):
    """An operator or sink of this node; ``acceptors`` kept its query's record when it was started."""

    query: str
    component: str
    acceptors: tuple[Acceptor, ...]


def starting_here(spec: OperatorSpec, node: str, reason: str, stats: OperatorStats | None = None) -> OperatorInfo:
    """Return the description of an operator that ``node`` is about to host, for that ``reason``."""
    return OperatorInfo(
        id=spec.id,
        node=node,
        fragment=spec.fragment,
        state=operator_states.STARTING,
        reason=reason,
        epoch=spec.epoch,
        durability=spec.durability,
        stats=stats,
    )


def acceptors_of(values: tuple[object, ...], component: str) -> tuple[Acceptor, ...]:
    """Return the acceptors in a call; raise ``bad-acceptors`` if there are none, or others than acceptors."""
    try:
        acceptors: tuple[Acceptor, ...] = tuple(decode_record(value, Acceptor) for value in values)
    except ProtocolError as error:
        raise SbonError("bad-acceptors", str(error), where=component) from error
    if not acceptors:
        raise SbonError("bad-acceptors", "no node keeps the query's record", where=component)
    return acceptors


# -- Operators ---------------------------------------------------------------------------------------------------------


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A query that reads an operator of another one; ``acceptors`` kept its record when it referred to the operator first."""

    query: str
    acceptors: tuple[Acceptor, ...] = ()


class HostedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of an operator, from which a restart resumes it.

    ``acceptors`` kept the query's record at its start, the submitter first, which has reserved the capacity. It is kept for the
    queries in ``references`` as well, also once its own is over (``owner_over``).
    """

    spec: OperatorSpec
    acceptors: tuple[Acceptor, ...]
    references: tuple[Reference, ...] = ()
    owner_over: bool = False

    @property
    def submitter(self) -> str:
        return self.acceptors[0].node

    def claim(self) -> ClaimComponent:
        """Return the request for its next epoch, after a restart."""
        return ClaimComponent(query=self.spec.query, component=self.spec.id, epoch=self.spec.epoch)

    @property
    def referring(self) -> tuple[str, ...]:
        return tuple(reference.query for reference in self.references)

    @property
    def readers(self) -> tuple[Reference, ...]:
        """Its own query, unless that is over, and those that refer to it."""
        own = () if self.owner_over else (Reference(query=self.spec.query, acceptors=self.acceptors),)
        return (*own, *self.references)

    def kept_for(self, queries: Iterable[str]) -> HostedOperator:
        """Return it with references of the other ones among the ``queries``; their acceptors have to be found."""
        known = {one.query: one for one in self.references}
        others = tuple(known.get(query, Reference(query=query)) for query in queries if query != self.spec.query)
        return msgspec.structs.replace(self, references=others)

    def failure(self, query: str, reason: str) -> ReportState:
        """Return the report to one of its queries that it has failed for good."""
        return ReportState(
            query=query, component=self.spec.id, state=operator_states.FAILED, reason=reason[:500], epoch=self.spec.epoch
        )


# -- Sinks -------------------------------------------------------------------------------------------------------------


class SinkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Order to the consumer's node: deliver the streams ``inputs`` (stream, node) as ``spec`` says.

    A further sink has a ``claim`` from the query's record, and begins where ``begin`` says. One that is ``temporary`` is a
    follower's, and removed once that has left. Columns of the streams in ``by_position`` have other names: they are
    those of ``schema`` by their order.
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
    """Where a further sink begins: after these frames by stream, and ``rows`` rows; streams in ``ended`` end with theirs."""

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


# -- Folders of this node's operators, and the removal of those whose deletion a crash interrupted ---------------------

ORPHANED_S = 60.0
"""Seconds after a start in which an engine process of the earlier daemon may still write to the checkpoints of operators that
have been deleted since; longer than a new one waits for their lock."""


def spill_of(context: Context, operator: str) -> Path:
    return context.data_dir / "spill" / operator


def checkpoint_of(context: Context, operator: str) -> Path:
    return context.data_dir / "operators" / operator


def copies_of(context: Context, attempt: str) -> Path:
    """Return the folder of what another node fetches from here in an attempt to move an operator."""
    return context.data_dir / "copies" / attempt


def copy_to(context: Context, operator: str) -> Path:
    """Return the copy of a checkpoint that comes here."""
    return context.data_dir / "copies" / f"{operator}~"


async def delete_copies(context: Context, attempt: str) -> None:
    """Delete :func:`copies_of` the attempt, also where the disk refuses that at first."""
    delete = partial(shutil.rmtree, copies_of(context, attempt), ignore_errors=True)
    await until_passed(context, partial(context.executor, delete), logged("copy-not-deleted", attempt=attempt))


def sweep(context: Context, is_kept: Callable[[str], bool], connected: Container[str]) -> None:
    """Delete streams and checkpoints of operators that are not kept, and spilled frames of those not connected."""
    for stream in context.outbox.streams():
        if not is_source(stream) and not is_kept(stream):
            context.outbox.drop_stream(stream)
    folder = checkpoint_of(context, "")
    for checkpoint in sorted(folder.iterdir()) if folder.is_dir() else ():
        if checkpoint.is_dir() and not is_kept(checkpoint.name):
            shutil.rmtree(checkpoint, ignore_errors=True)
    folder = spill_of(context, "")
    for spilled in sorted(folder.iterdir()) if folder.is_dir() else ():
        if spilled.name not in connected:
            shutil.rmtree(spilled, ignore_errors=True)


async def sweep_again(context: Context, stored: Iterable[str], is_kept: Callable[[str], bool]) -> None:
    """Delete what an orphaned engine process has written for those of the operators ``stored`` at the start that are gone."""
    await context.clock.sleep(ORPHANED_S)
    for operator in stored:
        if not is_kept(operator):
            shutil.rmtree(checkpoint_of(context, operator), ignore_errors=True)
