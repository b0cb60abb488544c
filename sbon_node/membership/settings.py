"""Knobs of membership; the defaults suit a wide area (round trips up to half a second)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class MembershipSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How quickly failures are found, and how much gossip that costs (SWIM: Das, Gupta, Motivala, DSN 2002)."""

    probe_interval_s: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            description="one member is probed in each interval; seconds; shorter finds failures sooner and costs more",
        ),
    ] = 1.0
    probe_timeout_s: Annotated[
        float,
        Meta(
            gt=0, le=60, description="wait for a direct answer before others are asked to probe; above the longest RTT; seconds"
        ),
    ] = 0.6
    indirect_timeout_s: Annotated[
        float, Meta(gt=0, le=60, description="wait for the answer of those asked to probe; seconds")
    ] = 1.2
    indirect_probes: Annotated[
        int, Meta(ge=0, le=16, description="members asked to probe one that does not answer (SWIM's k)")
    ] = 3
    suspicion_factor: Annotated[
        float,
        Meta(gt=0, le=100, description="a suspect has factor x log10(n + 9) x probe_interval_s to refute before it is dead"),
    ] = 3.0
    gossip_interval_s: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            description="while there are rumours they are also sent this often, beside the probes; seconds; below the time to "
            "refute, or false suspicions kill",
        ),
    ] = 0.5
    gossip_fanout: Annotated[int, Meta(ge=0, le=16, description="random members a rumour is sent to in each gossip interval")] = 3
    retransmit_factor: Annotated[
        float, Meta(gt=0, le=100, description="a rumour is sent factor x log2(n + 1) times by each member that knows it")
    ] = 3.0
    sync_interval_s: Annotated[
        float, Meta(gt=0, le=3600, description="period of a full exchange with a random member; heals partitions; seconds")
    ] = 15.0
    tombstone_s: Annotated[
        float, Meta(gt=0, le=1e6, description="dead and left members are remembered so long, against late rumours; seconds")
    ] = 3600.0
    join_timeout_s: Annotated[
        float, Meta(ge=0, le=600, description="at its start a node asks its seeds again for so long, then gives up; seconds")
    ] = 20.0
    rejoin_s: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            description="a node that has lost everybody tries again after so long; seconds; doubles up to the maximum",
        ),
    ] = 1.0
    rejoin_max_s: Annotated[
        float, Meta(gt=0, le=3600, description="longest pause between two such tries; seconds; lower finds the others sooner")
    ] = 30.0
    remembered_peers: Annotated[
        int, Meta(ge=1, le=4096, description="addresses of others kept on disk, any of which leads back into the cluster")
    ] = 64
    max_members: Annotated[int, Meta(ge=2, le=16_384, description="members known at once; more are refused, counted")] = 4096
