"""The requests of connections and queries, with and without asyncio. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from .model import (
    Accepted,
    Explanation,
    Finished,
    MemberInfo,
    NodeStatus,
    Progress,
    Pushed,
    QueryInfo,
    QueryList,
    QueryUsage,
    Rows,
    SinkSpec,
    StreamInfo,
    Unanswered,
)
from .placement_model import PlacementExplanation
from .requests import Ask
from .schema import columns_of

UNANSWERED_HEADER = "Sbon-Unanswered"


def status() -> Ask[NodeStatus]:
    return Ask("GET", "/v1/status", NodeStatus)


def members() -> Ask[list[MemberInfo]]:
    return Ask("GET", "/v1/members", list[MemberInfo])


def streams() -> Ask[list[StreamInfo]]:
    return Ask("GET", "/v1/streams", list[StreamInfo])


def stream(name: str) -> Ask[StreamInfo]:
    return Ask("GET", f"/v1/streams/{_part(name)}", StreamInfo)


def create_stream(name: str, schema: str, event_time: str, delay_ms: int, comment: str) -> Ask[StreamInfo]:
    """Return the request for a new stream; ``schema`` is as in SQL: ``"ts timestamp, price double"``."""
    declared = {
        "name": name,
        "schema": columns_of(schema),
        "event_time": event_time,
        "delay_ms": delay_ms,
        "comment": comment,
    }
    return Ask("POST", "/v1/streams", StreamInfo, msgspec.json.encode(declared))


def drop_stream(name: str) -> Ask[None]:
    return Ask("DELETE", f"/v1/streams/{_part(name)}", type(None))


def attach(
    stream_name: str,
    connector: str,
    *,
    file: str | Path | None,
    node: str,
    name: str,
    rows_s: float | None,
    options: Mapping[str, Any],
) -> Ask[StreamInfo]:
    """Return the request for a new source at ``node``; ``file`` is short for the connector ``file`` and its ``path``."""
    of_file = {"path": str(Path(file).absolute())} if file is not None else {}
    source: dict[str, Any] = {
        "stream": stream_name,
        "name": name or node,
        "node": node,
        "connector": connector or ("file" if file is not None else ""),
        "options": {**of_file, **options},
    }
    if rows_s is not None:
        source["rows_s"] = rows_s
    return Ask("POST", f"/v1/streams/{_part(stream_name)}/sources", StreamInfo, msgspec.json.encode(source))


def detach(stream_name: str, source: str) -> Ask[StreamInfo]:
    return Ask("DELETE", f"/v1/streams/{_part(stream_name)}/sources/{_part(source)}", StreamInfo)


def push(stream_name: str, rows: Iterable[Mapping[str, Any]], source: str, key: str) -> Ask[Pushed]:
    body = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    query = "?" + urlencode({"source": source}) if source else ""
    return Ask("POST", f"/v1/streams/{_part(stream_name)}/rows{query}", Pushed, body, "application/x-ndjson", key)


def submit(text: str, to: SinkSpec | None, options: Mapping[str, Any]) -> Ask[Progress | Accepted]:
    """Return the request of a submission. The node checks ``options`` (docs/api.md) and names the wrong field."""
    asked = {"sql": text, **options} if to is None else {"sql": text, "sink": to, **options}
    return Ask("POST", "/v1/queries", Progress | Accepted, msgspec.json.encode(asked))  # type: ignore[arg-type]


def queries() -> Ask[list[QueryInfo]]:
    return Ask("GET", "/v1/queries", list[QueryInfo])


def query_list(found: list[QueryInfo], unanswered: str) -> QueryList:
    """Return the list with the members that the header names: ``new-york=dead, paris=away``."""
    pairs = (part.strip().partition("=") for part in unanswered.split(","))
    return QueryList(found, (Unanswered(node, state) for node, _, state in pairs if node and state))


def query(query_id: str) -> Ask[QueryInfo]:
    return Ask("GET", f"/v1/queries/{_part(query_id)}", QueryInfo)


def stop(query_id: str) -> Ask[QueryInfo]:
    return Ask("DELETE", f"/v1/queries/{_part(query_id)}", QueryInfo)


def query_usage(query_id: str) -> Ask[QueryUsage]:
    return Ask("GET", f"/v1/queries/{_part(query_id)}/usage", QueryUsage)


def explain(text: str, options: Mapping[str, Any]) -> Ask[Explanation]:
    return Ask("POST", "/v1/explain", Explanation, msgspec.json.encode({"sql": text, **options}))


def explain_query(query_id: str) -> Ask[Explanation]:
    return Ask("GET", f"/v1/queries/{_part(query_id)}/explain", Explanation)


def explain_placement(text: str, options: Mapping[str, Any]) -> Ask[PlacementExplanation]:
    return Ask("POST", "/v1/explain/placement", PlacementExplanation, msgspec.json.encode({"sql": text, **options}))


def explain_query_placement(query_id: str) -> Ask[PlacementExplanation]:
    return Ask("GET", f"/v1/queries/{_part(query_id)}/explain/placement", PlacementExplanation)


def rows(query_id: str, after: Mapping[str, int]) -> Ask[Rows | Finished]:
    position = "?" + urlencode({"after": msgspec.json.encode(after).decode()}) if after else ""
    return Ask("GET", f"/v1/queries/{_part(query_id)}/rows{position}", Rows | Finished)  # type: ignore[arg-type]


def acknowledge(query_id: str, numbers: Mapping[str, int]) -> Ask[None]:
    body = msgspec.json.encode({"numbers": numbers})
    return Ask("POST", f"/v1/queries/{_part(query_id)}/acknowledge", type(None), body)


def anything(method: str, path: str, body: Any) -> Ask[Any]:
    return Ask(method, path, Any, None if body is None else msgspec.json.encode(body))


def _part(name: str) -> str:
    return quote(name, safe="")
