"""Knobs of moves of operators between nodes."""

from typing import Annotated

import msgspec
from msgspec import Meta

MIB = 2**20


class MigrationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of the copies by which operators take their state to another node."""

    bytes_s: Annotated[int, Meta(ge=64 * 1024, le=2**40)] = 50_000_000
    """bytes of checkpoints that this node sends to other nodes in a second, all copies together; lower it where copies slow
    down the rows of queries"""
    window_bytes: Annotated[int, Meta(ge=MIB, le=2**30)] = 8 * MIB
    """bytes of a copy that may be under way; raise it for fast links over long distances"""
    copies: Annotated[int, Meta(ge=1, le=1024)] = 4
    """copies that this node sends at once; more wait"""
    checks: Annotated[int, Meta(ge=1, le=65_536)] = 64
    """registers of operators that this node reads at once, to see whether a caller may move an operator here; raise it where
    many operators move here at once"""
    stall_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """time without a new byte after which a copy is given up; seconds"""
    handshake_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    """seconds that a sender waits for the first message on a connection for a copy"""
    reconnect_s: Annotated[float, Meta(gt=0, le=3600)] = 0.2
    """seconds before a lost connection of a copy is first tried again; doubles, jittered, up to the maximum"""
    reconnect_max_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    """longest pause in seconds between two tries of a lost connection of a copy"""
    follow_s: Annotated[float, Meta(gt=0, le=86_400)] = 300.0
    """time that a target has to catch up with the operator once it has the copy; a move that needs longer is given up;
    seconds; raise it where a target is hardly faster than the source"""
    near_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    """time for which a target that is behind by few batches waits until it has the operator's last batch alone to run, which
    makes the pause shortest; seconds; the operator stops after that at any batch"""
    near_batches: Annotated[int, Meta(ge=1, le=1024)] = 3
    """newest batches of an operator's host by which a target may be behind when migration.near_s begins; raise it where a
    target hardly keeps up, for a longer pause"""
    silence_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    """time without a call of an operator's host after which this node forgets the operator's follower here, unless it may be
    the next host; seconds"""
    copy_tries: Annotated[int, Meta(ge=1, le=1000)] = 5
    """tries to copy an operator's newest batch, whose files Spark may delete meanwhile; a move that needs more is given up"""
    copy_poll_s: Annotated[float, Meta(gt=0, le=60)] = 0.2
    """pause between two requests of an operator's host about the copy; seconds"""
    follow_poll_s: Annotated[float, Meta(gt=0, le=60)] = 0.05
    """pause between two reports of an operator's host about its newest batches; seconds; a follower that learns of them later
    makes the pause longer"""
    remembered: Annotated[int, Meta(ge=1, le=1_000_000)] = 256
    """moves of operators away from here whose end this node remembers, for callers that ask again"""
    drain_s: Annotated[float, Meta(gt=0, le=86_400)] = 600.0
    """time in which sbon drain moves all operators away; after that moves under way are given up, and those operators stay;
    seconds; raise it where operators have gigabytes of state"""
    drain_on_stop_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    """time that node.drain_on_stop has before the node stops with what is left; seconds; keep it well below that after which
    the service manager kills the daemon"""
    drain_queries: Annotated[int, Meta(ge=1, le=1024)] = 4
    """queries of which sbon drain moves operators at once, one of each query at a time"""
    drain_targets: Annotated[int, Meta(ge=1, le=1024)] = 5
    """nodes that sbon drain tries for an operator, one after another, before it stays"""
    drain_tries: Annotated[int, Meta(ge=1, le=1024)] = 5
    """failures of an operator itself, as one that has no batch to copy, after which it stays in a drain"""
    farewell_s: Annotated[float, Meta(ge=0, le=60)] = 0.5
    """time for which a drained node that has left still answers those that watch its drain; seconds"""
    report_s: Annotated[float, Meta(gt=0, le=60)] = 0.5
    """pause between two reports of how far a move is; seconds"""
    candidates: Annotated[int, Meta(ge=1, le=1024)] = 12
    """nodes that are asked for capacity at a time for an operator that a drain moves"""
    abandon_tries: Annotated[int, Meta(ge=1, le=1000)] = 10
    """calls that tell a node of a move that was given up, with growing pauses, before it is left to find out by itself"""
