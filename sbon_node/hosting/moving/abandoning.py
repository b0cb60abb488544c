"""Moves that are given up: their target forgets the follower, and the hosts of its inputs forget what it has subscribed to.

Both would do so by themselves, a while later: a follower looks at its register, and its subscriptions end with its connections.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from sbon_node.base.tasks import Tasks
from sbon_node.overlay.presence import AS_FOLLOWER
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.workflow.context import Context
from sbon_node.workflow.retry import backoff_of
from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.api.subscribers import attempt_of, component_of
from sbon_protocol.errors import SbonError
from sbon_protocol.moving import AbandonOperator

log = structlog.get_logger()


class Abandonment:
    """Tells other nodes, in the background, that an attempt is over: each until it has answered, at most ``tries`` times."""

    def __init__(self, context: Context, tries: int) -> None:
        self._context, self._tries, self._tasks = context, tries, Tasks()

    async def close(self) -> None:
        await self._tasks.close()

    def tell(self, spec: OperatorSpec, attempt: str, target: str, is_due: Callable[[], bool]) -> None:
        """Tell the target and the nodes of the operator's inputs, for as long as it ``is_due``."""
        nodes = dict.fromkeys(node for node in (target, *(one.node for one in spec.inputs)))
        call = AbandonOperator(operator=spec.id, attempt=attempt)
        for node in nodes:
            self._tasks.start(f"abandon {attempt} {node}", self._tell(node, call, is_due))

    async def _tell(self, node: str, call: AbandonOperator, is_due: Callable[[], bool]) -> None:
        context, backoff = self._context, backoff_of(self._context.settings)
        instance = context.membership.expected(node).instance
        for tried in range(self._tries):
            if tried:
                await context.clock.sleep(backoff.next_s())
            if not is_due() or context.presence.gone(AS_FOLLOWER, node, instance):
                return
            try:
                await context.call(node, call)
                return
            except SbonError as error:
                log.info("abandon-not-sent", node=node, operator=call.operator, reason=str(error))
        log.warning("abandon-given-up", node=node, operator=call.operator, tries=self._tries)


def subscriptions_of(outbox: Outbox, operator: str, attempt: str) -> list[tuple[str, str]]:
    """Return streams of this node and names under which the operator's follower subscribes to them."""
    return [
        (stream, subscriber)
        for stream in outbox.streams()
        for subscriber in outbox.link_counts(stream).links
        if component_of(subscriber) == operator and attempt_of(subscriber) == attempt
    ]


def forget_subscriptions(outbox: Outbox, operator: str, attempt: str) -> None:
    """Delete the subscriptions of a follower to streams of this node."""
    for stream, subscriber in subscriptions_of(outbox, operator, attempt):
        outbox.unsubscribe(stream, subscriber)
