"""Requests for the keeper of a node. Their answers are the node's own types, which commands also make without a node."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlencode

import msgspec

from sbon.requests import Ask
from sbon_node.base.events import Kind, Level, NodeEvent
from sbon_node.base.logging.levels import LogLevels
from sbon_node.operations.examination import Examination
from sbon_protocol.api.nodes import DebugDump, Resources


def examine(*, everywhere: bool = False) -> Ask[Examination]:
    """Examine the node asked, or all nodes."""
    return Ask("POST", "/v1/doctor?all=true" if everywhere else "/v1/doctor", Examination)


def debug_dump() -> Ask[DebugDump]:
    return Ask("GET", "/v1/debug", DebugDump)


def resources() -> Ask[Resources]:
    return Ask("GET", "/v1/debug/resources", Resources)


def log_levels() -> Ask[LogLevels]:
    return Ask("GET", "/v1/log", LogLevels)


def set_log_levels(levels: LogLevels) -> Ask[LogLevels]:
    return Ask("PUT", "/v1/log", LogLevels, msgspec.json.encode(levels))


def events(kinds: Collection[Kind] = (), level: Level = "info") -> Ask[NodeEvent]:
    """Yield events at the node from now on, without end; no kinds means all."""
    query = urlencode({"kinds": ",".join(kinds), "level": level})
    return Ask("GET", f"/v1/events?{query}", NodeEvent)  # type: ignore[arg-type]
