"""A client with a method for each request of the API; :class:`.connection.Connection` is more convenient for most programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit

from sbon_protocol.api.shown import Shown
from sbon_protocol.errors import SbonError

from . import endpoints, model, submitting
from .http import Http
from .requests import DEFAULT_API, Ask, base_url, nothing
from .synchronous import SynchronousTransport, each, run

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Shown)

UNREADY = frozenset({"starting", "stopping", "low-disk", "data-dir", "not-stored", "engine-failed"})
"""Codes of reasons that make a node unready."""


def asked(endpoint: Callable[P, Ask[R]]) -> Callable[Concatenate[Http, P], R]:
    """Return a method with the parameters of an endpoint that returns its answer."""

    return _described(lambda self, /, *args, **kwargs: self.ask(endpoint(*args, **kwargs)), endpoint, "{}")


def listed(endpoint: Callable[P, Ask[list[T]]]) -> Callable[Concatenate[Http, P], model.Listing[T]]:
    """:func:`asked`, for a list that is shown as a table."""

    return _described(lambda self, /, *args, **kwargs: model.Listing(self.ask(endpoint(*args, **kwargs))), endpoint, "{}")


def streamed(endpoint: Callable[P, Ask[R]]) -> Callable[Concatenate[Http, P], Generator[R, None, None]]:
    """:func:`asked`, for an answer in several events."""

    events = "Generator[{}, None, None]"
    return _described(lambda self, /, *args, **kwargs: self.events(endpoint(*args, **kwargs)), endpoint, events)


C = TypeVar("C", bound=Callable[..., Any])


def _described(call: C, endpoint: Callable[..., Any], returns: str) -> C:
    """Give a method, for ``help``, the name, the docstring and the parameters of its endpoint."""
    call.__name__, call.__doc__ = endpoint.__name__, endpoint.__doc__
    signature = inspect.signature(endpoint)
    arguments = [one.replace(annotation=one.annotation.replace("model.", "")) for one in signature.parameters.values()]
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *arguments]
    answer = returns.format(signature.return_annotation.replace("model.", "").removeprefix("Ask[").removesuffix("]"))
    call.__signature__ = signature.replace(parameters=parameters, return_annotation=answer)  # type: ignore[attr-defined]
    return call


class Client(Http):
    """A client of one node. Every method raises :class:`SbonError`: the node's own error, or ``node-unreachable``."""

    def __init__(self, api: str = DEFAULT_API) -> None:
        super().__init__(api)
        self.host = urlsplit(base_url(api)).hostname or ""

    status = asked(endpoints.status)
    members = listed(endpoints.members)
    rtt = listed(endpoints.rtt)
    drain = streamed(endpoints.drain)
    leave = asked(endpoints.leave)
    streams = listed(endpoints.streams)
    stream = asked(endpoints.stream)
    create_stream = asked(endpoints.create_stream)
    create_view = asked(endpoints.create_view)
    attach_source = asked(endpoints.attach)
    detach_source = asked(endpoints.detach)
    drop_stream = asked(endpoints.drop_stream)
    push = asked(endpoints.push)
    query = asked(endpoints.query)
    stop_query = asked(endpoints.stop)
    move_operator = streamed(endpoints.move)
    cancel_move = asked(endpoints.cancel_move)
    query_usage = asked(endpoints.query_usage)
    explain = asked(endpoints.explain)
    explain_query = asked(endpoints.explain_query)
    explain_placement = asked(endpoints.explain_placement)
    explain_query_placement = asked(endpoints.explain_query_placement)
    add_sink = asked(endpoints.add_sink)
    remove_sink = asked(endpoints.remove_sink)
    acknowledge = asked(endpoints.acknowledge)

    def readiness(self) -> model.Readiness:
        """Return whether the node can do its work, with the worst reason against it first."""
        try:
            return self.ask(endpoints.ready())
        except SbonError as error:
            if error.code not in UNREADY:
                raise
            return unready(error)

    def ready(self) -> bool:
        """Whether the node is reachable and has started."""
        try:
            return self.readiness().ready
        except SbonError as error:
            if error.code == "node-unreachable":
                return False
            raise

    def metrics(self) -> bytes:
        """Return the metrics in Prometheus' format."""
        return self.answer(endpoints.metrics()).body

    def join(self, *addresses: str) -> int:
        """Join the cluster of the nodes at these addresses; return the number of its known members."""
        return self.ask(endpoints.join(addresses)).members

    def queries(self) -> model.QueryList:
        """Return all queries; ``unanswered`` of the list names the members that may hold more."""
        return endpoints.query_list(*self.answer(endpoints.queries()))

    def submit(self, submission: model.Submission | Mapping[str, Any]) -> Generator[model.Progress | model.Accepted, None, None]:
        """Yield the steps of a submission, as :func:`.submitting.steps` does."""
        return each(submitting.steps(SynchronousTransport(self), submission))

    def submitted(self, submission: model.Submission) -> model.QueryInfo:
        """Submit a query, and wait until it runs."""
        return run(submitting.submitted(SynchronousTransport(self), submission))

    def rows(
        self, query_id: str, after: dict[str, int] | None = None, idle: Callable[[], None] = nothing, sink: str = ""
    ) -> Generator[model.Reader | model.Rows | model.Finished, None, None]:
        """Yield frames after those numbers, until the query is over or the connection is lost; ``idle`` as in :meth:`events`.

        They are those of the first sink, of a further ``sink``, or, with ``any``, of one of its own, which they name.
        """
        return self.events(endpoints.rows(query_id, after or {}, sink), idle)

    def at(self, name: str) -> Self:
        """Return a client of the node of that name, or this client if its node is the same.

        Raises ``unknown-node`` and ``consumer-unreachable``.
        """
        if self.status().name == name:
            return self
        member = next((one for one in self.members() if one.name == name), None)
        if member is None:
            raise SbonError("unknown-node", f"rows are taken at {name!r}, which is not known here", hint="see: sbon members")
        client = type(self)(f"http://{member.api}")
        try:
            client._check_is(member)
        except SbonError:
            client.close()
            raise
        return client

    def _check_is(self, member: model.MemberInfo) -> None:
        """Raise ``consumer-unreachable`` unless the node is this member, or is about to start or stop."""
        try:
            if (name := self.status().name) == member.name:
                return
            why = f"the node {name} answers there"
        except SbonError as error:
            if error.code in ("starting", "stopping"):
                return
            why = error.message
        away = f"{member.name} is {member.state}: start it again"
        reached = (
            f"push on the machine of {member.name}, or start that node with --api-bind at an address reached from here "
            "(the API has no passwords)"
        )
        message = f"rows are taken at {member.name}, whose API cannot be reached from here at {member.api}: {why}"
        raise SbonError("consumer-unreachable", message, hint=reached if member.state == "alive" else away)


def unready(refusal: SbonError) -> model.Readiness:
    """Return the refusal of /readyz: its details are all reasons, the worst first."""
    worst = model.Reason(code=refusal.code, weight="unready", message=refusal.message, hint=refusal.hint)
    others = tuple(
        model.Reason(code=code, weight="unready" if code in UNREADY else "impaired", message=message)
        for code, _, message in (line.partition(": ") for line in refusal.details[1:])
    )
    return model.Readiness(ready=False, reasons=(worst, *others))
