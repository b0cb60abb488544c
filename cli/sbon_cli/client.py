"""Talking to a node: a typed client for commands and tests, of few lines."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Collection, Iterable, Iterator
from email.message import Message
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from sbon_cli import endpoints
from sbon_cli.endpoints import Ask, problem_of
from sbon_cli.waiting import waiting
from sbon_node.api.problems import Problem
from sbon_node.connectors.delivered import Finished, Rows
from sbon_node.connectors.push import Pushed
from sbon_node.control.explaining.placement_explanation import PlacementExplanation
from sbon_node.control.explaining.plan_explanation import Explanation
from sbon_node.control.query_list import UNANSWERED_HEADER, QueryList, unanswered_of
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
from sbon_node.operations.readiness import UNREADY, Readiness, unready
from sbon_node.query.catalog import SourceDeclaration, StreamDeclaration

R = TypeVar("R")

DEFAULT_API = "http://127.0.0.1:7480"
SILENCE_S = 60.0
"""An event stream that says nothing for so long, not even that it lives, is taken for lost."""
ANSWER_S = 120.0
"""Longest wait for a plain answer."""
PLANNING_S = 600.0
"""Longest wait for a plan, which may have to start an engine."""


def unreachable(api: str, why: object) -> SbonError:
    return SbonError(
        "node-unreachable",
        f"no node answers at {api}: {why}",
        hint="start one with sbon node, or name another's API (by default at port 7480) with --node URL",
    )


def host_and_port(api: str) -> tuple[str, int]:
    """Of ``http://HOST:PORT`` or ``HOST:PORT``; raises ``bad-address``."""
    try:
        url = urlsplit(api if "//" in api else f"http://{api}")
        if url.scheme == "http" and url.hostname:
            return url.hostname, url.port or 7480
        why = ""
    except ValueError as error:
        why = f": {error}"
    hint = f"for example {DEFAULT_API}"
    raise SbonError("bad-address", f"{api!r} is not the URL of a node's API{why}", where="--node, SBON_API", hint=hint)


class Client:
    """Asks one node. Every method raises :class:`SbonError`: the node's refusal, or ``node-unreachable``."""

    def __init__(self, api: str = DEFAULT_API, *, patience_s: float | None = None) -> None:
        """``patience_s`` is the longest wait for a plain answer, in place of those above."""
        self.api = api
        self.host, self._port = host_and_port(api)
        self._patience_s = patience_s

    def ask(self, ask: Ask[R], within_s: float = ANSWER_S) -> R:
        return self._asked(ask, within_s)[0]

    def _asked(self, ask: Ask[R], within_s: float) -> tuple[R, Message]:
        """The answer, and the response's headers."""
        if self._patience_s is not None:
            within_s = self._patience_s
        path = ask.path.partition("?")[0]
        slow = "; where its engine has to start first, that takes some seconds" if path.startswith("/v1/explain") else ""
        with waiting(f"{ask.method} {path} at {self.api}{slow}"), self._open(ask, within_s) as response:
            return ask.decoded(response.read()), response.headers

    def events(
        self, ask: Ask[R], wanted: Callable[[], bool] = lambda: True, idle: Callable[[], None] = lambda: None
    ) -> Iterator[R]:
        """The events of a response, until they are ``wanted`` no more, which is asked at each sign of life; ``idle`` is called
        where that is all that came for ``api.keepalive_s``. Raises the problem a stream ends with, and ``node-unreachable`` where
        it breaks."""
        with self._open(ask, SILENCE_S) as response:
            for data in data_of(_wanted(response.lines(), wanted, idle)):
                event = ask.decoded(data)
                if isinstance(event, Problem):
                    raise event.error()
                yield event

    def readiness(self) -> Readiness:
        """Whether it can do its work; where it cannot, the worst reason comes first."""
        try:
            return self.ask(endpoints.ready())
        except SbonError as error:
            if error.code not in UNREADY:
                raise
            return unready(error)

    def examine(self) -> Examination:
        return self.ask(endpoints.examine())

    def inside(self) -> Inside:
        return self.ask(endpoints.inside())

    def metrics(self) -> bytes:
        """As Prometheus reads them."""
        with self._open(Ask("GET", "/metrics", type(None)), ANSWER_S) as response:
            return response.read()

    def log_levels(self) -> LogLevels:
        return self.ask(endpoints.log_levels())

    def set_log_levels(self, levels: LogLevels) -> LogLevels:
        return self.ask(endpoints.set_log_levels(levels))

    def ready(self) -> bool:
        """Whether it is there and has started."""
        try:
            return self.readiness().ready
        except SbonError as error:
            if error.code == "node-unreachable":
                return False
            raise

    def status(self) -> NodeStatus:
        return self.ask(endpoints.status())

    def members(self, near: str = "", within_ms: float | None = None) -> list[MemberInfo]:
        return self.ask(endpoints.members(near, within_ms))

    def happenings(self, kinds: Collection[Kind] = (), level: Level = "info") -> Iterator[Happening]:
        """What happens at the node from now on, without end; of all kinds where none are named."""
        for event in self.events(endpoints.events(kinds, level)):
            assert not isinstance(event, Problem)
            yield event

    def rtt(self, question: RttQuestion) -> list[PairInfo]:
        return self.ask(endpoints.rtt(question))

    def join(self, *addresses: str) -> int:
        return self.ask(endpoints.join(addresses)).members

    def drain(self) -> None:
        self.ask(endpoints.drain())

    def leave(self, *, force: bool = False) -> None:
        self.ask(endpoints.leave(force=force))

    def streams(self) -> list[StreamInfo]:
        return self.ask(endpoints.streams())

    def stream(self, name: str) -> StreamInfo:
        return self.ask(endpoints.stream(name))

    def create_stream(self, declaration: StreamDeclaration) -> StreamInfo:
        return self.ask(endpoints.create_stream(declaration))

    def attach_source(self, source: SourceDeclaration) -> StreamInfo:
        return self.ask(endpoints.attach_source(source))

    def detach_source(self, stream: str, source: str) -> StreamInfo:
        return self.ask(endpoints.detach_source(stream, source))

    def drop_stream(self, name: str) -> None:
        self.ask(endpoints.drop_stream(name))

    def push(self, name: str, body: bytes, media_type: str, *, source: str = "", key: str = "") -> Pushed:
        """Posts rows to the stream's source at this node; they are durable when it returns."""
        return self.ask(endpoints.push(name, source, body, media_type, key))

    def queries(self) -> QueryList:
        """A list that says in ``unanswered`` which members may hold more."""
        found, headers = self._asked(endpoints.queries(), ANSWER_S)
        return QueryList(found, unanswered_of(headers.get(UNANSWERED_HEADER, "")))

    def query(self, query_id: str) -> QueryInfo:
        return self.ask(endpoints.query(query_id))

    def stop_query(self, query_id: str) -> QueryInfo:
        return self.ask(endpoints.stop_query(query_id))

    def bill(self, query_id: str) -> Bill:
        return self.ask(endpoints.bill(query_id))

    def explain(self, question: Question) -> Explanation:
        """Waits as long as an engine may take to start."""
        return self.ask(endpoints.explain(question), PLANNING_S)

    def explain_query(self, query_id: str) -> Explanation:
        return self.ask(endpoints.explain_query(query_id))

    def explain_placement(self, question: Question) -> PlacementExplanation:
        """Waits as long as an engine may take to start."""
        return self.ask(endpoints.explain_placement(question), PLANNING_S)

    def explain_query_placement(self, query_id: str) -> PlacementExplanation:
        return self.ask(endpoints.explain_query_placement(query_id), PLANNING_S)

    def submit(self, submission: Submission) -> Iterator[Progress | Accepted]:
        """What the node does with it, step by step; the last is :class:`Accepted`."""
        for event in self.events(endpoints.submit(submission)):
            assert not isinstance(event, Problem)
            yield event

    def submitted(self, submission: Submission) -> QueryInfo:
        """Submits and waits until the query runs."""
        for event in self.submit(submission):
            if isinstance(event, Accepted):
                return event.query
        raise unreachable(self.api, "the connection ended before the query was accepted")

    def rows(
        self,
        query_id: str,
        after: dict[str, int] | None = None,
        wanted: Callable[[], bool] = lambda: True,
        idle: Callable[[], None] = lambda: None,
    ) -> Iterator[Rows | Finished]:
        """Frames after those numbers, until the query is over or the connection is lost, or they are ``wanted`` no more; ``idle``
        as in :meth:`events`."""
        for event in self.events(endpoints.rows(query_id, after or {}), wanted, idle):
            assert not isinstance(event, Problem)
            yield event

    def acknowledge(self, query_id: str, numbers: dict[str, int]) -> None:
        self.ask(endpoints.acknowledge(query_id, numbers))

    def _open(self, ask: Ask[Any], timeout_s: float) -> _Response:
        connection = http.client.HTTPConnection(self.host, self._port, timeout=timeout_s)
        try:
            connection.request(ask.method, ask.path, body=ask.body, headers=ask.headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise problem_of(ask, response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise unreachable(self.api, error) from error
        except BaseException:
            connection.close()
            raise
        return _Response(self.api, connection, response)


class _Response:
    """An answer under way; whatever breaks on it is ``node-unreachable``."""

    def __init__(self, api: str, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._api, self._connection, self._response = api, connection, response

    @property
    def headers(self) -> Message:
        """By their names, however these are written."""
        return self._response.headers

    def read(self) -> bytes:
        return self._response.read()

    def lines(self) -> Iterator[bytes]:
        while line := self._response.readline():
            yield line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()
        if isinstance(error, OSError | http.client.HTTPException):
            raise unreachable(self._api, error) from error


def _wanted(lines: Iterable[bytes], wanted: Callable[[], bool], idle: Callable[[], None]) -> Iterator[bytes]:
    for line in lines:
        if not wanted():
            return
        if line.startswith(b":"):
            idle()
        yield line


def data_of(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each event. Ours fill one line each; names and ids repeat what the data says."""
    for line in lines:
        if line.startswith(b"data: ") and line.endswith(b"\n"):
            yield line[6:]
