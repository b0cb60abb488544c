"""Submissions whose outcome is known even where the connection is lost meanwhile."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from sbon_protocol.api.query_ids import name_of
from sbon_protocol.errors import SbonError

from . import endpoints, states
from .follower import PAUSES_S
from .http import is_unsent
from .model import Accepted, Progress, QueryInfo, Submission
from .requests import Transport, unreachable

PATIENCE_S = 60.0
"""Seconds in which a node whose connection was lost is asked what became of a submission."""


async def steps(node: Transport, submission: Submission | Mapping[str, Any]) -> AsyncGenerator[Progress | Accepted, None]:
    """Yield the steps of a submission; the last is :class:`Accepted`.

    If the connection is lost after the first step, the query's record tells whether it was accepted.

    Raises :class:`SbonError`: the node's refusal, or ``node-unreachable``, whose message says what is known of the query.
    """
    query = ""
    try:
        async with aclosing(node.events(endpoints.submit(submission))) as events:
            async for event in events:
                yield event
                if isinstance(event, Accepted):
                    return
                query = event.query or query
        lost = unreachable(node.api, "the connection ended before the query was accepted")
    except SbonError as error:
        if error.code != "node-unreachable" or is_unsent(error):
            raise
        lost = error
    if not query:
        hint = "to see whether the query runs: sbon query list"
        raise SbonError(lost.code, f"{lost.message}; it may have accepted the query", hint=hint) from lost
    yield Accepted(query=await _outcome(node, query, lost), seconds={})


async def submitted(node: Transport, submission: Submission | Mapping[str, Any]) -> QueryInfo:
    """Submit a query and wait until it runs."""
    async with aclosing(steps(node, submission)) as events:
        async for event in events:
            if isinstance(event, Accepted):
                return event.query
    raise AssertionError("a submission without an error ends with its acceptance")


async def _outcome(node: Transport, query: str, lost: SbonError) -> QueryInfo:
    """Return the record of an accepted query; raise ``lost`` with what became of it if it was not accepted, or is not known."""
    until, name, tries = time.monotonic() + PATIENCE_S, name_of(query), 0
    while time.monotonic() < until:
        try:
            info = await node.ask(endpoints.query(query))
        except SbonError as error:
            if error.code == "unknown-query" and not error.details:  # All members have answered.
                raise SbonError(lost.code, f"{lost.message}; it has not accepted the query", hint="submit it again") from error
        else:
            if info.state in (states.RUNNING, states.FINISHED):
                return info
            if info.state not in states.LIVE:
                raise SbonError(lost.code, f"{lost.message}; {name} is {info.state}: {info.reason}", hint="submit it again")
        await node.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
        tries += 1
    raise SbonError(
        lost.code, f"{lost.message}; {name} may run", hint=f"to see whether it does: sbon query show {name}"
    ) from lost
