"""Knobs of the directory."""

from typing import Annotated

import msgspec
from msgspec import Meta


class DirectorySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on round-trip times that nodes measure for each other. A pair costs three datagrams in each direction, and a call if
    the asking node is neither of the two. Both ends have token buckets, with a token for each pair that is measured again. A
    query of seven operators has some 450 pairs measured, some dozens by any single node.
    """

    fresh_s: Annotated[float, Meta(gt=0, le=86_400)] = 120.0
    """time for which a measured pair is not measured again, and outranks the coordinates; seconds; lower it if routes change"""
    max_pairs: Annotated[int, Meta(ge=1, le=256)] = 256
    """pairs one request may name; more are refused"""
    burst_pairs: Annotated[int, Meta(ge=1, le=100_000)] = 1024
    """pairs this node has measured in a burst, and the most it measures for others in a burst; raise it for queries of more
    than some fifteen operators"""
    pairs_per_s: Annotated[float, Meta(gt=0, le=10_000)] = 32.0
    """pairs this node has measured a second, by itself and others, in the long run"""
    pairs_for_others_per_s: Annotated[float, Meta(gt=0, le=10_000)] = 32.0
    """pairs this node measures a second for others, in the long run"""
    burst_pairs_for_one: Annotated[int, Meta(ge=1, le=100_000)] = 256
    """pairs this node measures in a burst for a single other node"""
    pairs_for_one_per_s: Annotated[float, Meta(gt=0, le=10_000)] = 8.0
    """pairs this node measures a second for a single other node, in the long run"""
    max_askers: Annotated[int, Meta(ge=1, le=100_000)] = 1024
    """asking nodes remembered for these limits; beyond it, the one that asked longest ago goes"""
    ping_timeout_s: Annotated[float, Meta(gt=0, le=60)] = 2.0
    """wait for the answer to a ping, above the longest RTT; a node asked to ping has three times that to answer; seconds"""
    max_measured: Annotated[int, Meta(ge=1, le=1_000_000)] = 4096
    """measured pairs that are remembered; beyond it, the least used go"""
