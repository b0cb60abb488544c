"""Knobs of the directory."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class DirectorySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much nodes measure round-trip times for each other. A pair costs three datagrams each way, and a call where neither of
    the two is who asks; both ends have buckets of tokens, one for each pair that is measured anew. A query of seven operators has
    some 450 pairs measured, of which a single node is asked for some dozens."""

    fresh_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="a measured pair is not measured again, and beats the coordinates, for so long; seconds; lower it where "
            "routes change",
        ),
    ] = 120.0
    max_pairs: Annotated[int, Meta(ge=1, le=256, description="pairs one request may name; more are refused")] = 256
    burst_pairs: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="pairs this node has measured in a burst, and the most it measures in one because others ask; raise it "
            "for queries of more than some fifteen operators",
        ),
    ] = 1024
    pairs_per_s: Annotated[
        float, Meta(gt=0, le=10_000, description="pairs this node has measured a second, by itself and others, in the long run")
    ] = 32.0
    pairs_for_others_per_s: Annotated[
        float, Meta(gt=0, le=10_000, description="pairs this node measures a second because others ask, in the long run")
    ] = 32.0
    burst_pairs_for_one: Annotated[
        int, Meta(ge=1, le=100_000, description="pairs this node measures in a burst because one other node asks")
    ] = 256
    pairs_for_one_per_s: Annotated[
        float, Meta(gt=0, le=10_000, description="pairs this node measures a second because one other asks, in the long run")
    ] = 8.0
    max_askers: Annotated[
        int, Meta(ge=1, le=100_000, description="nodes whose asking is remembered for that; of more, who asked longest ago goes")
    ] = 1024
    ping_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            description="wait for the answer to a ping, above the longest RTT; a node that is asked to ping has thrice that to "
            "answer; seconds",
        ),
    ] = 2.0
    max_measured: Annotated[
        int, Meta(ge=1, le=1_000_000, description="measured pairs that are remembered; of more, the least used go")
    ] = 4096
