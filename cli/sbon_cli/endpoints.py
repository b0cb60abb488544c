"""Requests to the API, each with the type of its reply in this program."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote, urlencode

import msgspec

from sbon.model import Finished, Rows
from sbon.requests import Ask
from sbon_node.api.routes.bodies import AcknowledgeBody, JoinBody, Joined
from sbon_node.connectors.sources.push import Pushed
from sbon_node.events import Kind, Level, NodeEvent
from sbon_node.explain.placement_explanation import PlacementExplanation
from sbon_node.explain.plan_explanation import Explanation
from sbon_node.logging.levels import LogLevels
from sbon_node.model.catalogue import SourceDeclaration, StreamDeclaration
from sbon_node.model.nodes import MemberInfo, NodeStatus, PairInfo, RttRequest
from sbon_node.model.queries import Accepted, Progress, QueryInfo, QuerySpec, Submission
from sbon_node.model.streams import StreamInfo
from sbon_node.model.usage import QueryUsage
from sbon_node.operations.debug_dump_types import DebugDump
from sbon_node.operations.examination import Examination
from sbon_node.operations.readiness import Readiness


def ready() -> Ask[Readiness]:
    return Ask("GET", "/readyz", Readiness)


def examine() -> Ask[Examination]:
    return Ask("POST", "/v1/doctor", Examination)


def debug_dump() -> Ask[DebugDump]:
    return Ask("GET", "/v1/debug", DebugDump)


def log_levels() -> Ask[LogLevels]:
    return Ask("GET", "/v1/log", LogLevels)


def set_log_levels(levels: LogLevels) -> Ask[LogLevels]:
    return Ask("PUT", "/v1/log", LogLevels, msgspec.json.encode(levels))


def drain() -> Ask[None]:
    return Ask("POST", "/v1/drain", type(None))


def status() -> Ask[NodeStatus]:
    return Ask("GET", "/v1/status", NodeStatus)


def members(near: str = "", within_ms: float | None = None) -> Ask[list[MemberInfo]]:
    asked = {"near": near, "within_ms": "" if within_ms is None else repr(within_ms)}
    query = urlencode({name: value for name, value in asked.items() if value})
    return Ask("GET", f"/v1/members?{query}" if query else "/v1/members", list[MemberInfo])


def events(kinds: Collection[Kind], level: Level) -> Ask[NodeEvent]:
    query = urlencode({"kinds": ",".join(kinds), "level": level})
    return Ask("GET", f"/v1/events?{query}", NodeEvent)  # type: ignore[arg-type]


def rtt(question: RttRequest) -> Ask[list[PairInfo]]:
    return Ask("POST", "/v1/rtt", list[PairInfo], msgspec.json.encode(question))


def join(addresses: tuple[str, ...]) -> Ask[Joined]:
    return Ask("POST", "/v1/join", Joined, msgspec.json.encode(JoinBody(addresses=addresses)))


def leave(*, force: bool = False) -> Ask[None]:
    return Ask("POST", "/v1/leave?force=true" if force else "/v1/leave", type(None))


def streams() -> Ask[list[StreamInfo]]:
    return Ask("GET", "/v1/streams", list[StreamInfo])


def stream(name: str) -> Ask[StreamInfo]:
    return Ask("GET", f"/v1/streams/{quote(name, safe='')}", StreamInfo)


def create_stream(declaration: StreamDeclaration) -> Ask[StreamInfo]:
    return Ask("POST", "/v1/streams", StreamInfo, msgspec.json.encode(declaration))


def drop_stream(name: str) -> Ask[None]:
    return Ask("DELETE", f"/v1/streams/{quote(name, safe='')}", type(None))


def attach_source(source: SourceDeclaration) -> Ask[StreamInfo]:
    return Ask("POST", f"/v1/streams/{quote(source.stream, safe='')}/sources", StreamInfo, msgspec.json.encode(source))


def push(name: str, source: str, body: bytes, media_type: str, key: str) -> Ask[Pushed]:
    query = "?" + urlencode({"source": source}) if source else ""
    return Ask("POST", f"/v1/streams/{quote(name, safe='')}/rows{query}", Pushed, body, media_type, key)


def detach_source(stream: str, source: str) -> Ask[StreamInfo]:
    return Ask("DELETE", f"/v1/streams/{quote(stream, safe='')}/sources/{quote(source, safe='')}", StreamInfo)


def queries() -> Ask[list[QueryInfo]]:
    return Ask("GET", "/v1/queries", list[QueryInfo])


def submit(submission: Submission) -> Ask[Progress | Accepted]:
    return Ask("POST", "/v1/queries", Progress | Accepted, msgspec.json.encode(submission))  # type: ignore[arg-type]


def query(query_id: str) -> Ask[QueryInfo]:
    return Ask("GET", f"/v1/queries/{quote(query_id, safe='')}", QueryInfo)


def stop_query(query_id: str) -> Ask[QueryInfo]:
    return Ask("DELETE", f"/v1/queries/{quote(query_id, safe='')}", QueryInfo)


def query_usage(query_id: str) -> Ask[QueryUsage]:
    return Ask("GET", f"/v1/queries/{quote(query_id, safe='')}/usage", QueryUsage)


def explain(question: QuerySpec) -> Ask[Explanation]:
    return Ask("POST", "/v1/explain", Explanation, msgspec.json.encode(question))


def explain_query(query_id: str) -> Ask[Explanation]:
    return Ask("GET", f"/v1/queries/{quote(query_id, safe='')}/explain", Explanation)


def explain_placement(question: QuerySpec) -> Ask[PlacementExplanation]:
    return Ask("POST", "/v1/explain/placement", PlacementExplanation, msgspec.json.encode(question))


def explain_query_placement(query_id: str) -> Ask[PlacementExplanation]:
    return Ask("GET", f"/v1/queries/{quote(query_id, safe='')}/explain/placement", PlacementExplanation)


def rows(query_id: str, after: dict[str, int]) -> Ask[Rows | Finished]:
    position = "?" + urlencode({"after": msgspec.json.encode(after).decode()}) if after else ""
    path = f"/v1/queries/{quote(query_id, safe='')}/rows{position}"
    return Ask("GET", path, Rows | Finished)  # type: ignore[arg-type]


def acknowledge(query_id: str, numbers: dict[str, int]) -> Ask[None]:
    body = msgspec.json.encode(AcknowledgeBody(numbers=numbers))
    return Ask("POST", f"/v1/queries/{quote(query_id, safe='')}/acknowledge", type(None), body)
