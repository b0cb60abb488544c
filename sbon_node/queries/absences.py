"""Nodes that are gone for good, and those that may come back with what they had."""

from __future__ import annotations

from sbon_node.overlay.membership.table import REACHABLE
from sbon_node.workflow.context import Context


class Absences:
    """Judges whether nodes are gone for good, by membership. ``tombstone_s`` is the time for which that remembers the dead."""

    def __init__(self, context: Context, tombstone_s: float) -> None:
        self._context, self._tombstone_s, self._started_s = context, tombstone_s, context.clock.now()

    def gone(self, node: str, instance: str) -> str:
        """Return why what that instance of a node had does not come back; empty while it may.

        A dead node may return with its disk. It counts as gone once it has left for good, once its name belongs to another data
        directory, or once no member has heard of it for ``tombstone_s``. A node that has just started does not know how long
        another one is dead, so it waits for as long.
        """
        member = self._context.membership.get(node)
        if member is None:
            known_s = self._context.clock.now() - self._started_s
            return f"{node} has not been there for {self._tombstone_s:g} s" if known_s > self._tombstone_s else ""
        if member.state == "left":
            return f"{node} has left the cluster"
        if instance and member.instance not in ("", instance):
            back = "is back" if member.state in REACHABLE else "was back"
            return f"{node} has lost its data directory: it {back} with another one"
        return ""
