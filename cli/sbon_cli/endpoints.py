"""The requests the API answers, each with the type of its reply: what both clients speak."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from sbon_node.api.bodies import AcknowledgeBody, JoinBody, Joined
from sbon_node.api.problems import Problem
from sbon_node.connectors.delivered import Finished, Rows
from sbon_node.connectors.push import Pushed
from sbon_node.control.explaining.placement_explanation import PlacementExplanation
from sbon_node.control.explaining.plan_explanation import Explanation
from sbon_node.control.report import (
    Accepted,
    Bill,
    MemberInfo,
    NodeStatus,
    PairInfo,
    Progress,
    QueryInfo,
    Question,
    RttQuestion,
    StreamInfo,
    Submission,
)
from sbon_node.errors import SbonError
from sbon_node.happenings import Happening, Kind, Level
from sbon_node.log_levels import LogLevels
from sbon_node.operations.dumped import Inside
from sbon_node.operations.finding import Examination
from sbon_node.operations.readiness import Readiness
from sbon_node.query.catalog import SourceDeclaration, StreamDeclaration

R = TypeVar("R")


class Ask(NamedTuple, Generic[R]):
    """One request; ``reply`` is the type of the answer, or of each event. ``key`` names it where it must count once only."""

    method: str
    path: str
    reply: type[R]
    body: bytes | None = None
    media_type: str = "application/json"
    key: str = ""

    @property
    def headers(self) -> dict[str, str]:
        named = {"Idempotency-Key": self.key} if self.key else {}
        return {"Content-Type": self.media_type, **named} if self.body is not None else named

    def decoded(self, body: bytes) -> R:
        """The answer, typed; raises :class:`SbonError` ``bad-answer`` where the server is not one of ours."""
        try:
            return msgspec.json.decode(body or b"null", type=self.reply)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise bad_answer(self, str(error)) from error


def bad_answer(ask: Ask[Any], what: str) -> SbonError:
    return SbonError(
        "bad-answer", f"{ask.method} {ask.path}: not an answer of a node: {what}", hint="does --node name a node's API?"
    )


def problem_of(ask: Ask[Any], status: int, body: bytes) -> SbonError:
    """The refusal a response with an error status carries."""
    try:
        return msgspec.json.decode(body, type=_Refusal).error()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return bad_answer(ask, f"status {status}")


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """As :class:`Problem`, whose tag refusals made outside the application do not carry."""

    code: str
    message: str
    where: str = ""
    hint: str = ""
    details: tuple[str, ...] = ()

    def error(self) -> SbonError:
        return SbonError(self.code, self.message, where=self.where, hint=self.hint, details=self.details)


def ready() -> Ask[Readiness]:
    return Ask("GET", "/readyz", Readiness)


def examine() -> Ask[Examination]:
    return Ask("POST", "/v1/doctor", Examination)


def inside() -> Ask[Inside]:
    return Ask("GET", "/v1/debug", Inside)


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


def events(kinds: Collection[Kind], level: Level) -> Ask[Happening | Problem]:
    query = urlencode({"kinds": ",".join(kinds), "level": level})
    return Ask("GET", f"/v1/events?{query}", Happening | Problem)  # type: ignore[arg-type]


def rtt(question: RttQuestion) -> Ask[list[PairInfo]]:
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


def submit(submission: Submission) -> Ask[Progress | Accepted | Problem]:
    return Ask("POST", "/v1/queries", Progress | Accepted | Problem, msgspec.json.encode(submission))  # type: ignore[arg-type]


def query(query_id: str) -> Ask[QueryInfo]:
    return Ask("GET", f"/v1/queries/{quote(query_id, safe='')}", QueryInfo)


def stop_query(query_id: str) -> Ask[QueryInfo]:
    return Ask("DELETE", f"/v1/queries/{quote(query_id, safe='')}", QueryInfo)


def bill(query_id: str) -> Ask[Bill]:
    return Ask("GET", f"/v1/queries/{quote(query_id, safe='')}/bill", Bill)


def explain(question: Question) -> Ask[Explanation]:
    return Ask("POST", "/v1/explain", Explanation, msgspec.json.encode(question))


def explain_query(query_id: str) -> Ask[Explanation]:
    return Ask("GET", f"/v1/queries/{quote(query_id, safe='')}/explain", Explanation)


def explain_placement(question: Question) -> Ask[PlacementExplanation]:
    return Ask("POST", "/v1/explain/placement", PlacementExplanation, msgspec.json.encode(question))


def explain_query_placement(query_id: str) -> Ask[PlacementExplanation]:
    return Ask("GET", f"/v1/queries/{quote(query_id, safe='')}/explain/placement", PlacementExplanation)


def rows(query_id: str, after: dict[str, int]) -> Ask[Rows | Finished | Problem]:
    position = "?" + urlencode({"after": msgspec.json.encode(after).decode()}) if after else ""
    path = f"/v1/queries/{quote(query_id, safe='')}/rows{position}"
    return Ask("GET", path, Rows | Finished | Problem)  # type: ignore[arg-type]


def acknowledge(query_id: str, numbers: dict[str, int]) -> Ask[None]:
    body = msgspec.json.encode(AcknowledgeBody(numbers=numbers))
    return Ask("POST", f"/v1/queries/{quote(query_id, safe='')}/acknowledge", type(None), body)
