"""The server's state for its own routes: whether it is ready, and its number of answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from aiohttp import web

from sbon_node.api.server.request_counts import RequestCounts
from sbon_protocol.errors import SbonError

State = Literal["starting", "ready", "stopping"]


class Serving(NamedTuple):
    """State of the server; ``state`` and ``connections`` are called when needed."""

    state: Callable[[], State]
    connections: Callable[[], int]
    requests: RequestCounts


SERVING = web.AppKey("serving", Serving)


def not_ready(state: State) -> SbonError:
    """Return the error with which nearly all requests are rejected in that state."""
    code = "starting" if state == "starting" else "stopping"
    return SbonError(code, f"the node is {state}", hint="try again soon")
