"""Knobs of membership, each with its formula. The defaults are the preset for a wide area (round trips up to half a second).

A crash is detected about ``probe_timeout_s + indirect_timeout_s + suspicion_min_s`` after the first probe that meets it, which
comes after ``probe_interval_s`` in the mean (the probes of all members together are a Poisson process), if
``suspicion_confirmations`` others confirm it; without other members it takes ``suspicion_max_factor`` times ``suspicion_min_s``.
Others hear of it within some ``gossip_interval_s x log2(n + 1)``. A live node is never declared dead if it answers within
``indirect_timeout_s + suspicion_min_s`` after its late probe, even if all datagrams are lost: it is asked over TCP for that long.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Preset = Literal["wan", "lan"]
Seconds = Annotated[float, Meta(gt=0, le=60)]


class MembershipSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Speed of failure detection, and its cost in gossip (SWIM: Das, Gupta, Motivala, DSN 2002; Lifeguard: Dadgar, Phillips,
    Currey, DSN 2018). n is the number of living members, this one included.
    """

    preset: Preset = "wan"
    """defaults of the knobs of this section: wan for round trips up to 500 ms, lan for up to 50 ms, where timeouts and
    intervals are a third; the same in a whole cluster"""
    tags: Annotated[tuple[Annotated[str, Meta(pattern=r"^[^=,]{1,32}=[^=,]{1,32}$")], ...], Meta(max_length=8)] = ()
    """tags of this node that all members see, as zone=eu-1,rack=7; at most eight; parent=NODE names this node's parent in a
    hierarchy, for strategies that place along one"""
    probe_interval_s: Seconds = 1.0
    """one member is probed in each interval, in turn, or, at most every other time, a neighbour whose distance has to be
    measured; seconds; shorter finds failures sooner, and costs 2 datagrams / interval"""
    probe_timeout_s: Seconds = 0.5
    """wait for a direct answer before others are asked to probe; above the longest usual RTT; seconds"""
    clock_interval_s: Seconds = 10.0
    """a node whose clock must be known, for delays of rows that come from it, is pinged this often if nothing else pings it;
    seconds"""
    indirect_timeout_s: Seconds = 1.0
    """wait for the answers of those asked to probe, and over TCP; above 2 x RTT; seconds"""
    indirect_probes: Annotated[int, Meta(ge=0, le=16)] = 3
    """members asked to probe one that does not answer (SWIM's k)"""
    awareness_max: Annotated[int, Meta(ge=0, le=16)] = 8
    """bound of the awareness score s, in which a node counts signs of its own bad health: probe interval and timeouts are x
    (s + 1); 0 turns it off"""
    suspicion_min_s: Seconds = 2.6
    """time from a suspect's failed probe to its death, if enough others confirm it; above the longest pause of a live node
    less indirect_timeout_s; seconds"""
    suspicion_max_factor: Annotated[float, Meta(ge=1, le=100)] = 4.0
    """with c of k confirmations: time = max(min, max - (max - min) x log(c + 1) / log(k + 1)), where max = factor x min"""
    suspicion_confirmations: Annotated[int, Meta(ge=0, le=16)] = 3
    """k of the formula above: other nodes whose own probes of the suspect failed"""
    insist_s: Seconds = 0.25
    """a node whose probe of a suspect failed pings it at this interval until the suspicion is settled: a stalled live node
    gets suspicion_min_s / insist_s pings, and needs one answer to arrive; seconds"""
    gossip_interval_s: Seconds = 0.25
    """interval at which pending rumours are sent, in addition to probes; seconds"""
    gossip_fanout: Annotated[int, Meta(ge=1, le=16)] = 3
    """random members a rumour is sent to in each gossip interval"""
    gossip_to_dead_s: Annotated[float, Meta(ge=0, le=3600)] = 30.0
    """time for which a dead member still gets gossip, so that it can refute if it lives; seconds"""
    retransmit_margin: Annotated[float, Meta(ge=0, le=100)] = 6.0
    """a rumour is sent ceil(ln(n + 1) + margin) times by each member that knows it; some member misses it in about
    exp(-margin) of all cases"""
    coordinate_factor: Annotated[float, Meta(gt=0, le=100)] = 0.3
    """a moved coordinate is sent ceil(factor x log2(n + 1)) times; reconciliation does the rest"""
    coordinate_step_ms: Annotated[float, Meta(ge=0, le=1000)] = 2.0
    """a coordinate is published again after it has moved this far; milliseconds"""
    coordinate_pause_s: Annotated[float, Meta(ge=0, le=60)] = 0.4
    """and at the earliest min(pause x n, this node's uptime) seconds after the last publication: coordinates cost a node at
    most 80 x coordinate_factor x log2(n + 1) / pause bytes a second"""
    sync_interval_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    """mean time between reconciliations with a random member, 3 of 10 times with a member declared dead, which heals
    partitions; seconds; a digest costs 4 bytes for every 4 to 8 members"""
    tombstone_s: Annotated[float, Meta(gt=0, le=1e6)] = 86_400.0
    """time for which dead and left members are remembered; longer partitions heal only through seeds; seconds"""
    replace: bool = False
    """whether this node takes its name over from a node that is lost: queries count that one as gone for good; for the one
    start that replaces it"""
    join_timeout_s: Annotated[float, Meta(ge=0, le=600)] = 20.0
    """time for which a starting node asks its seeds again before it gives up; seconds"""
    rejoin_s: Annotated[float, Meta(gt=0, le=600)] = 1.0
    """pause before a node that has lost all members tries again; seconds; doubles up to the maximum"""
    rejoin_max_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """longest pause between two such tries, and between two tries of remembered members that are missing; seconds; lower
    finds the others sooner"""
    remembered_peers: Annotated[int, Meta(ge=1, le=4096)] = 64
    """addresses of others kept on disk, any of which leads back into the cluster"""
    max_members: Annotated[int, Meta(ge=2, le=16_384)] = 4096
    """members known at once; more are refused, counted"""

    max_members_at_an_address: Annotated[int, Meta(ge=1, le=16_384)] = 64
    """living members known at one IP address or host name, on whatever ports; more are refused, counted"""
    max_leap: Annotated[int, Meta(ge=1, le=2**20)] = 1024
    """a rumour that raises an incarnation, or the version of a coordinate, by more than this above the known value is refused
    and counted, and the member itself is asked"""

    @property
    def stand_still_s(self) -> float:
        """Longest stall of a live node after a late probe that is never declared a death."""
        return self.indirect_timeout_s + self.suspicion_min_s

    @property
    def declared_dead_s(self) -> float:
        """Time from a node's death until it is declared dead, in 149 of 150 cases: probes are a Poisson process."""
        found_s = 5 * self.probe_interval_s + self.probe_timeout_s + self.indirect_timeout_s
        return found_s + self.suspicion_max_factor * self.suspicion_min_s

    @property
    def tag_words(self) -> dict[str, str]:
        """The tags, by key."""
        return dict(tag.split("=", 1) for tag in self.tags)


PRESETS: dict[Preset, dict[str, Any]] = {
    "wan": {},
    "lan": {
        "probe_timeout_s": 0.15,
        "indirect_timeout_s": 0.35,
        "suspicion_min_s": 1.5,
        "insist_s": 0.1,
        "gossip_interval_s": 0.1,
        "sync_interval_s": 5.0,
    },
}
"""Differences of each preset from the defaults."""


def preset(name: Preset, **knobs: Any) -> MembershipSettings:
    """The settings of a preset, with these knobs turned."""
    return MembershipSettings(preset=name, **{**PRESETS[name], **knobs})
