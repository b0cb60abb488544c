"""Requests of the HTTP API, each with the type of its answer; a docstring tells what the request does. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from sbon_protocol.api.columns import DECIMAL, named_fields, plain_type
from sbon_protocol.errors import SbonError

from . import model
from .pushed_rows import json_of, ndjson
from .requests import PLANNING_S, Ask, checked_text

STREAM_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
UNANSWERED_HEADER = "Sbon-Unanswered"


def ready() -> Ask[model.Readiness]:
    """Ask for readiness; a node that is not ready answers with an error."""
    return Ask("GET", "/readyz", model.Readiness)


def metrics() -> Ask[None]:
    """Ask for metrics; the answer is text in Prometheus' format."""
    return Ask("GET", "/metrics", type(None))


def status() -> Ask[model.NodeStatus]:
    return Ask("GET", "/v1/status", model.NodeStatus)


def members(near: str = "", within_ms: float | None = None) -> Ask[list[model.MemberInfo]]:
    """Return all members, or those within a round-trip time of the node ``near``."""
    query_string = {"near": near, "within_ms": "" if within_ms is None else repr(within_ms)}
    query = urlencode({name: value for name, value in query_string.items() if value})
    return Ask("GET", f"/v1/members?{query}" if query else "/v1/members", list[model.MemberInfo])


def rtt(question: model.RttRequest) -> Ask[list[model.PairInfo]]:
    return Ask("POST", "/v1/rtt", list[model.PairInfo], json_of(question))


def join(addresses: Iterable[str]) -> Ask[model.Joined]:
    return Ask("POST", "/v1/join", model.Joined, json_of({"addresses": list(addresses)}))


def drain(*, dry_run: bool = False) -> Ask[model.DrainStep | model.NodeDrained]:
    """Yield the steps of operators that leave the node, which takes no part in queries any more; then the end."""
    path = "/v1/drain?dry_run=true" if dry_run else "/v1/drain"
    return Ask("POST", path, model.DrainStep | model.NodeDrained)  # type: ignore[arg-type]


def leave(*, force: bool = False) -> Ask[None]:
    return Ask("POST", "/v1/leave?force=true" if force else "/v1/leave", type(None))


def streams() -> Ask[list[model.StreamInfo]]:
    return Ask("GET", "/v1/streams", list[model.StreamInfo])


def stream(name: str) -> Ask[model.StreamInfo]:
    return Ask("GET", _path("streams/{name}", name=name), model.StreamInfo)


def create_stream(declaration: model.StreamDeclaration) -> Ask[model.StreamInfo]:
    return Ask("POST", "/v1/streams", model.StreamInfo, json_of(declaration))


def declared(name: str, schema: str, event_time: str, delay_ms: int, comment: str) -> model.StreamDeclaration:
    """Return the declaration of a stream; ``schema`` is as in SQL: ``"ts timestamp, price double"``."""
    columns = tuple(columns_of(checked_text(schema, "schema")))
    return model.StreamDeclaration(name=name, schema=columns, event_time=event_time, delay_ms=delay_ms, comment=comment)


def columns_of(text: str) -> list[model.Column]:
    """Return the columns of ``ts timestamp, delay double``; the node checks types. Raise :class:`SbonError` ``bad-schema``."""
    return [model.Column(name.strip("`"), _named(type_)) for _, name, type_ in named_fields(text)]


def _named(text: str) -> str:
    """Return the type as the node writes it: ``integer`` is ``int``, ``decimal(5)`` is ``decimal(5,0)``."""
    type_ = plain_type(text)
    decimal = DECIMAL.match(type_)
    return f"decimal({decimal[1] or 10},{decimal[2] or 0})" if decimal else type_


def create_view(view: model.ViewDeclaration) -> Ask[model.StreamInfo]:
    return Ask("POST", "/v1/views", model.StreamInfo, json_of(view))


def drop_stream(name: str) -> Ask[None]:
    return Ask("DELETE", _path("streams/{name}", name=name), type(None))


def attach(source: model.SourceDeclaration) -> Ask[model.StreamInfo]:
    return Ask("POST", _path("streams/{stream}/sources", stream=source.stream), model.StreamInfo, json_of(source))


def source_at(
    node: str,
    stream_name: str,
    connector: str,
    *,
    file: str | Path | None,
    name: str,
    rows_s: float | None,
    options: Mapping[str, Any],
) -> model.SourceDeclaration:
    """Return the declaration of a source at ``node``; ``file`` is short for the connector ``file`` and its ``path``."""
    path = {"path": str(Path(file).absolute())} if file is not None else {}
    return model.SourceDeclaration(
        stream=stream_name,
        name=name or node,
        node=node,
        connector=connector or ("file" if file is not None else ""),
        options={**path, **options},
        rows_s=rows_s,
    )


def detach(stream: str, source: str) -> Ask[model.StreamInfo]:
    return Ask("DELETE", _path("streams/{stream}/sources/{source}", stream=stream, source=source), model.StreamInfo)


def push(stream: str, body: bytes, media_type: str, *, source: str = "", key: str = "") -> Ask[model.Pushed]:
    """Post rows to the stream's source at this node; they are durable when it answers.

    Only one of several posts with the same ``key`` counts.
    """
    query = "?" + urlencode({"source": source}) if source else ""
    return Ask("POST", _path("streams/{stream}/rows", stream=stream) + query, model.Pushed, body, media_type, key)


def push_rows(stream: str, rows: Any, source: str, key: str) -> Ask[model.Pushed]:
    """Post mappings, or a table (:mod:`.pushed_rows`)."""
    return push(stream, ndjson(rows), "application/x-ndjson", source=source, key=key)


ACKNOWLEDGE_S = 10.0
"""Longest wait for the answer to an acknowledgement, which is sent again."""
SUBMISSION_SIGNS = 3
"""Missing signs of life after which a submission is given up: it leaves a query of unknown state."""


def submit(submission: model.Submission | Mapping[str, Any]) -> Ask[model.Progress | model.Accepted]:
    """Yield the steps of a submission; the last is :class:`Accepted`.

    The node checks its fields (docs/api.md) and names a wrong field.
    """
    body = json_of(submission)
    return Ask("POST", "/v1/queries", model.Progress | model.Accepted, body, signs=SUBMISSION_SIGNS)  # type: ignore[arg-type]


def submission_of(text: str, to: model.SinkSpec | None, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a submission, with ``options`` as the user gives them. Raises ``bad-request`` for what is no sink."""
    if to is not None and not isinstance(to, model.SinkSpec):
        hint = 'for example sbon.SinkSpec(kind="file", options={"path": "/data/rows.csv"}); docs/connectors.md has all kinds'
        raise SbonError("bad-request", f"a sink is no {type(to).__name__}", where="to", hint=hint)
    return {"sql": text, **options} if to is None else {"sql": text, "sink": to, **options}


def result_of(name: str, sql: str, **options: Any) -> model.Submission:
    """Return the submission of a query whose result is a stream; both have the name, as far as a query may have it.

    Raises ``bad-name``.
    """
    if not STREAM_NAME.fullmatch(checked_text(name, "name")):
        hint = "lower case letters, digits and _ are allowed, at most 63, a letter first"
        raise SbonError("bad-name", f"{name!r} is not a stream's name", where="name", hint=hint)
    sink = model.SinkSpec(kind="stream", options={"stream": name})
    return model.Submission(sql=sql, name=name.replace("_", "-").rstrip("-"), sink=sink, **options)


def check_result(schema: str, event_time: str, delay_ms: int, comment: str) -> None:
    """Refuse to declare a stream that is the result of a query."""
    if schema or event_time or delay_ms or comment:
        message = "a query's result takes columns and event time from the query, and no comment"
        raise SbonError("bad-request", message, where="as_", hint="leave out schema, event_time, delay_ms and comment")


def queries() -> Ask[list[model.QueryInfo]]:
    return Ask("GET", "/v1/queries", list[model.QueryInfo])


def query_list(body: bytes, headers: Mapping[str, str]) -> model.QueryList:
    """Return the list with the members that a header names: ``new-york=dead, paris=away``."""
    pairs = (entry.strip().partition("=") for entry in headers.get(UNANSWERED_HEADER, "").split(","))
    return model.QueryList(queries().decoded(body), (model.Unanswered(node, state) for node, _, state in pairs if node and state))


def query(query_id: str) -> Ask[model.QueryInfo]:
    return Ask("GET", _path("queries/{query_id}", query_id=query_id), model.QueryInfo)


def stop(query_id: str) -> Ask[model.QueryInfo]:
    return Ask("DELETE", _path("queries/{query_id}", query_id=query_id), model.QueryInfo)


def move(query_id: str, operator: str, to: str, how: str = "follow") -> Ask[model.Moving | model.Moved]:
    """Yield the steps of a move of an operator to the node ``to``; the last is :class:`Moved`."""
    body = json_of({"operator": operator, "to": to, "how": how})
    return Ask("POST", _path("queries/{query_id}/move", query_id=query_id), model.Moving | model.Moved, body)  # type: ignore[arg-type]


def cancel_move(query_id: str, operator: str) -> Ask[model.MoveCancelled]:
    """Give up the move of an operator, which goes on where it is."""
    path = _path("queries/{query_id}/move", query_id=query_id)
    return Ask("DELETE", f"{path}?{urlencode({'operator': operator})}", model.MoveCancelled)


def query_usage(query_id: str) -> Ask[model.QueryUsage]:
    return Ask("GET", _path("queries/{query_id}/usage", query_id=query_id), model.QueryUsage)


def explain(question: model.QuerySpec | Mapping[str, Any]) -> Ask[model.Explanation]:
    """Explain a query; this may last as long as an engine takes to start."""
    return Ask("POST", "/v1/explain", model.Explanation, json_of(question), within_s=PLANNING_S)


def explain_query(query_id: str) -> Ask[model.Explanation]:
    return Ask("GET", _path("queries/{query_id}/explain", query_id=query_id), model.Explanation)


def explain_placement(question: model.QuerySpec | Mapping[str, Any]) -> Ask[model.PlacementExplanation]:
    """Explain a placement; this may last as long as an engine takes to start."""
    return Ask("POST", "/v1/explain/placement", model.PlacementExplanation, json_of(question), within_s=PLANNING_S)


def explain_query_placement(query_id: str) -> Ask[model.PlacementExplanation]:
    path = _path("queries/{query_id}/explain/placement", query_id=query_id)
    return Ask("GET", path, model.PlacementExplanation, within_s=PLANNING_S)


def add_sink(query_id: str, request: model.SinkRequest) -> Ask[model.SinkInfo]:
    """Add a sink to a query that runs; it is open when the node answers."""
    return Ask("POST", _path("queries/{query_id}/sinks", query_id=query_id), model.SinkInfo, json_of(request))


def remove_sink(query_id: str, sink: str) -> Ask[model.SinkInfo]:
    """Remove a further sink of a query; what it has delivered stays."""
    return Ask("DELETE", _path("queries/{query_id}/sinks/{sink}", query_id=query_id, sink=sink), model.SinkInfo)


def rows(query_id: str, after: Mapping[str, int], sink: str = "") -> Ask[model.Reader | model.Rows | model.Finished]:
    """Yield rows of the first sink, or of a further ``sink``; ``any``: of one of its own, if need be."""
    position = {"after": json_of(after).decode()} if after else {}
    parameters = urlencode(position | ({"sink": sink} if sink else {}))
    path = _path("queries/{query_id}/rows", query_id=query_id) + ("?" + parameters if parameters else "")
    return Ask("GET", path, model.Reader | model.Rows | model.Finished)  # type: ignore[arg-type]


def acknowledge(query_id: str, numbers: Mapping[str, int], reader: str, sink: str = "") -> Ask[None]:
    """Acknowledge frames, with the word of the ``reader`` event with which their rows began."""
    body = json_of({"numbers": numbers, "reader": reader, **({"sink": sink} if sink else {})})
    return Ask("POST", _path("queries/{query_id}/acknowledge", query_id=query_id), type(None), body, within_s=ACKNOWLEDGE_S)


def anything(method: str, path: str, body: Any) -> Ask[Any]:
    return Ask(checked_text(method, "method"), checked_text(path, "path"), Any, None if body is None else json_of(body))


def _path(template: str, **arguments: str) -> str:
    """Return a path with these arguments: ``_path("streams/{name}", name="clicks")``; raise ``bad-request`` for no text."""
    return "/v1/" + template.format(**{name: quote(checked_text(value, name), safe="") for name, value in arguments.items()})
