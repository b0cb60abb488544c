"""The choice of a node that keeps a backup, of an operator or a source: of another zone if there is one, and near."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from sbon_node.base.tasks import check_cancelled
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.net.peers import Expected
from sbon_node.workflow.context import Context
from sbon_protocol.errors import SbonError

FENCED = frozenset({"fenced", "not-owner", "record-unknown", "query-over"})
"""Refusals after which this node may not go on with an operator or a source before it has claimed it anew."""
UNREACHABLE = frozenset({"peer-unreachable", "node-away", "unknown-node"})
"""Errors of calls after which a backup may return, with all that it has."""
TOO_LARGE = "backup-too-large"
"""The refusal of a backup with less room for frames than this node has frames; another may have more."""


class BackupChoice:
    """Nodes that may keep the backup of one operator or source; those that have refused are not asked again for a while.

    One that ``insists`` asks them again at the next choice where there are no others: senders of a source wait for an answer.
    """

    def __init__(self, context: Context, settings: BackupSettings, *, insists: bool = False) -> None:
        self._context, self._settings, self._insists = context, settings, insists
        self._refused_until_s: dict[str, float] = {}

    def refuse(self, node: str) -> None:
        """Do not ask this node for the next ``backups.refused_s`` seconds."""
        self._refused_until_s[node] = self._context.clock.now() + self._settings.refused_s

    async def choose(self, ask: Callable[[Expected], Awaitable[None]], where: str, hint: str) -> None:
        """Ask one node after another until one keeps the backup.

        Raises :class:`SbonError`: ``no-backup`` with the reasons of all that were asked, or a refusal that is ``FENCED``.
        """
        context, reasons = self._context, list[str]()
        for node in self._candidates():
            try:
                await ask(context.membership.expected(node))
                return
            except SbonError as error:
                check_cancelled()
                if error.code in FENCED:
                    raise
                reasons.append(f"{node}: {error}")
                self.refuse(node)
        if not reasons and self._insists:
            self._refused_until_s.clear()
        message = "; ".join(reasons) or "there is no other node that may keep one"
        raise SbonError("no-backup", message[:1000], where=where, hint=hint)

    def _candidates(self) -> list[str]:
        now_s = self._context.clock.now()
        self._refused_until_s = {node: until_s for node, until_s in self._refused_until_s.items() if until_s > now_s}
        nodes = [node for node in self._context.membership.alive() if node not in self._refused_until_s]
        return sorted(nodes, key=self._distance)[: self._settings.candidates]

    def _distance(self, node: str) -> tuple[bool, float, str]:
        """Nodes of another zone first, then the nearest."""
        context = self._context
        zones = [member.meta.tags.get("zone", "") for one in (context.name, node) if (member := context.membership.get(one))]
        same_zone = len(zones) == 2 and zones[0] == zones[1] != ""
        one_way_ms = context.directory.estimate_rtt_ms(context.name, node).one_way_ms
        return same_zone, math.inf if one_way_ms is None else one_way_ms, node
