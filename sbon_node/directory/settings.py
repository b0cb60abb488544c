"""Knobs of the directory."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class DirectorySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on round-trip times that nodes measure for each other. A pair costs three datagrams in each direction, and a call if
    the asking node is neither of the two. Both ends have token buckets, with a token for each pair that is measured again. A
    query of seven operators has some 450 pairs measured, some dozens by any single node.
    """

    fresh_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="time for which a measured pair is not measured again, and outranks the coordinates; seconds; lower "
            "it if routes change",
        ),
    ] = 120.0
    max_pairs: Annotated[int, Meta(ge=1, le=256, description="pairs one request may name; more are refused")] = 256
    burst_pairs: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="pairs this node has measured in a burst, and the most it measures for others in a burst; raise it "
            "for queries of more than some fifteen operators",
        ),
    ] = 1024
    pairs_per_s: Annotated[
        float, Meta(gt=0, le=10_000, description="pairs this node has measured a second, by itself and others, in the long run")
    ] = 32.0
    pairs_for_others_per_s: Annotated[
        float, Meta(gt=0, le=10_000, description="pairs this node measures a second for others, in the long run")
    ] = 32.0
    burst_pairs_for_one: Annotated[
        int, Meta(ge=1, le=100_000, description="pairs this node measures in a burst for a single other node")
    ] = 256
    pairs_for_one_per_s: Annotated[
        float, Meta(gt=0, le=10_000, description="pairs this node measures a second for a single other node, in the long run")
    ] = 8.0
    max_askers: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="asking nodes remembered for these limits; beyond it, the one that asked longest ago goes",
        ),
    ] = 1024
    ping_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            description="wait for the answer to a ping, above the longest RTT; a node asked to ping has three times that to "
            "answer; seconds",
        ),
    ] = 2.0
    max_measured: Annotated[
        int, Meta(ge=1, le=1_000_000, description="measured pairs that are remembered; beyond it, the least used go")
    ] = 4096
