"""Sending of messages between the coordinators of queries' zones."""

from __future__ import annotations

from sbon_node.workflow.context import Context
from sbon_protocol.calls import CALLS, method_of
from sbon_protocol.messages import Call
from sbon_protocol.zones import PlacedOperators


async def send_to_coordinator(context: Context, node: str, message: Call, within_s: float) -> PlacedOperators | None:
    """Return the answer of a node to a message; raises :class:`sbon_protocol.errors.SbonError`.

    A message that causes others is answered after them, and may take ``within_s``; the others get as long as any short answer.
    """
    if CALLS[method_of(message)][1] is None:
        await context.call(node, message, timeout_s=min(within_s, context.settings.call_timeout_s))
        return None
    return await context.ask(node, message, PlacedOperators, timeout_s=within_s)
