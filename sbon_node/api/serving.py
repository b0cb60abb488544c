"""What a server tells of itself to its own routes: whether it is ready, how much it has answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from aiohttp import web

from sbon_node.api.requests import RequestCounts
from sbon_node.errors import SbonError

State = Literal["starting", "ready", "stopping"]


class Serving(NamedTuple):
    """``state`` and ``connections`` are asked when they are wanted."""

    state: Callable[[], State]
    connections: Callable[[], int]
    requests: RequestCounts


SERVING = web.AppKey("serving", Serving)


def not_ready(state: State) -> SbonError:
    """Why nearly everything is refused in that state."""
    return SbonError(state, f"the node is {state}", hint="try again soon")
