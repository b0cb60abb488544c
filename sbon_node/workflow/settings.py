"""Knobs of the workflows between nodes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_node.model.servers import MOST_SPEED


class ControlSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timeouts of workflows between peers, and limits of what they keep."""

    call_timeout_s: Annotated[
        float, Meta(gt=0, le=600, description="wait for a peer's short answer; seconds; raise it on very slow links")
    ] = 10.0

    start_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="wait for an operator to run, engine start included; then the query is placed without that node; "
            "seconds; longer than engine.start_timeout_s",
        ),
    ] = 240.0
    reservation_s: Annotated[
        float, Meta(gt=0, le=3600, description="lifetime of a reservation whose operator has not started; seconds")
    ] = 300.0
    reserved_share: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="share of engine.max_operators that another node may hold reserved while others ask for capacity; "
            "they get the excess; all nodes that are no members count as one",
        ),
    ] = 0.5
    reserved_s: Annotated[
        float,
        Meta(gt=0, le=3600, description="time for which a node may hold more than that share, to start a query; seconds"),
    ] = 15.0
    placement_rounds: Annotated[
        int, Meta(ge=1, le=20, description="placements tried when a chosen node refuses after all; then the query is refused")
    ] = 5
    explain_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="time limit of the strategies that an explanation compares; it lists those that did not finish; seconds",
        ),
    ] = 15.0
    retry_s: Annotated[float, Meta(gt=0, le=600, description="pause before asking an unreachable peer again; seconds")] = 1.0
    retry_max_s: Annotated[
        float, Meta(gt=0, le=3600, description="longest such pause, for hosts that must learn of a query's end; seconds")
    ] = 30.0
    sync_interval_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="pause between catalogue comparisons with a random member; at rest eight times that; seconds",
        ),
    ] = 5.0
    max_queries: Annotated[
        int, Meta(ge=1, le=2048, description="query records one node holds, finished ones included; the oldest over ones go")
    ] = 1000
    max_registers: Annotated[
        int, Meta(ge=1, le=65_536, description="replicated registers of which one node keeps a copy; more are refused")
    ] = 8192
    checks: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="records and registers of queries that this node reads at once, to see whether a caller may end its "
            "components, and whether one may read its streams; more callers try again",
        ),
    ] = 64
    max_forgotten: Annotated[
        int,
        Meta(
            ge=1,
            le=1_048_576,
            description="ended queries whose uids one node remembers, so that no late message revives their records or "
            "sinks; also registers that others keep instead of this node; the oldest go",
        ),
    ] = 16_384
    documents_mb: Annotated[
        int,
        Meta(
            ge=1,
            le=1_048_576,
            description="texts, plans and placements of queries that one node keeps beside its registers; more are refused; "
            "megabytes",
        ),
    ] = 512
    repair_s: Annotated[
        float,
        Meta(gt=0, le=86_400, description="pause between checks that the keepers of a register are still there; seconds"),
    ] = 30.0
    replace_s: Annotated[
        float,
        Meta(
            gt=0,
            le=1e9,
            description="time for which a keeper of a register is dead before another node replaces it; seconds",
        ),
    ] = 3600.0
    drive_s: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="pause between checks whether a query recorded here needs work, without messages; seconds",
        ),
    ] = 5.0
    sink_failover_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="seconds for which the node of a sink is lost before another node takes the sink over, where the user "
            "allows that (--sink-failover)",
        ),
    ] = 5.0
    takeover_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="time for which a node that places a query is gone before another node ends the query; seconds",
        ),
    ] = 10.0
    orphan_check_s: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="pause after which a host asks again whether the queries of its components live; seconds",
        ),
    ] = 60.0
    resume_tries: Annotated[
        int, Meta(ge=1, le=1000, description="starts of an operator after a restart; if all fail, its query does")
    ] = 5
    max_sinks: Annotated[int, Meta(ge=1, le=4096, description="sinks one node hosts; more are refused")] = 256
    follow_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=4 * 2**20,
            description="bytes of rows in one answer to a follower at another node, one frame at least; raise it for fast links "
            "over long distances",
        ),
    ] = 2**20
    follower_grace_s: Annotated[
        float,
        Meta(
            gt=0,
            le=1e6,
            description="seconds after which a follower beside a query's first sink is given up once it has left, with what is "
            "kept for it; raise it if terminals lose their connections for long",
        ),
    ] = 60.0
    follow_wait_s: Annotated[
        float,
        Meta(gt=0, le=600, description="time for which such a follower's call waits for rows before it is repeated; seconds"),
    ] = 10.0
    relayed_followers: Annotated[
        int,
        Meta(
            ge=1,
            le=4096,
            description="followers of queries at other nodes that wait for rows at once, the others in turn; keep it below "
            "net.max_requests",
        ),
    ] = 16
    max_inputs: Annotated[int, Meta(ge=1, le=4096, description="streams one operator or sink may take; more are refused")] = 1024
    max_streams: Annotated[int, Meta(ge=1, le=2048, description="streams in the catalogue; more are refused")] = 1024
    kept_events: Annotated[
        int, Meta(ge=0, le=4096, description="last events of members, placements and queries kept for later listeners")
    ] = 256
    history_interval_s: Annotated[
        float,
        Meta(gt=0, le=3600, description="pause between points of the history of this node and of its queries; seconds"),
    ] = 2.0
    history_points: Annotated[
        int, Meta(ge=2, le=100_000, description="newest points kept of each history; with 2 s between them ten minutes")
    ] = 300
    history_queries: Annotated[
        int,
        Meta(
            ge=0,
            le=2048,
            description="queries that get a point at a time, in turn; each point asks the hosts of the query's components",
        ),
    ] = 8
    measure_interval_s: Annotated[
        float,
        Meta(gt=0, le=86_400, description="pause between rounds that remember measurements of running operators; seconds"),
    ] = 30.0
    max_measurements: Annotated[
        int, Meta(ge=0, le=65_536, description="operators whose measurements one node remembers, for later plans; the oldest go")
    ] = 4096
    measurement_age_s: Annotated[
        float, Meta(gt=0, le=1e9, description="older measurements do not count in a plan; seconds; lower it where streams change")
    ] = 86_400.0
    bandwidth_bytes_s: Annotated[
        float,
        Meta(
            gt=0,
            le=1e12,
            description="throughput that operators of this node may use; bytes a second; set it to the site's uplink",
        ),
    ] = 125_000_000.0
    cores: Annotated[
        float, Meta(ge=0, le=4096, description="cores operators may reserve; 0 takes the machine's, or its container's")
    ] = 0.0
    speed: Annotated[
        float,
        Meta(
            ge=0,
            le=MOST_SPEED,
            description="speed of a core, relative to a Xeon core of 2.8 GHz; 0 measures it when the node starts",
        ),
    ] = 0.0
    memory_mb: Annotated[
        float,
        Meta(
            ge=0,
            le=1e8,
            description="memory operators may reserve; megabytes; 0 takes 3/4 of the machine's, or its container's",
        ),
    ] = 0.0

    @property
    def component_timeout_s(self) -> float:
        """Timeout of a call within another call, so that the outer caller, who waits ``call_timeout_s``, still gets a partial
        answer.
        """
        return self.call_timeout_s / 3
