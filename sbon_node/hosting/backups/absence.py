"""When the node that keeps a backup, of an operator or a source, is to be replaced."""

from __future__ import annotations

from sbon_node.net.peers import Expected
from sbon_node.workflow.context import Context


class BackupAbsence:
    """How long one backup has been away, as of the calls that have failed; ``replace_after_s`` seconds are too long."""

    def __init__(self, context: Context, replace_after_s: float) -> None:
        self._context, self._replace_after_s = context, replace_after_s
        self._since_s: float | None = None

    def ends(self) -> None:
        """Note that it has answered, or that it is another backup."""
        self._since_s = None

    def is_final(self, backup: Expected) -> bool:
        """Return, after a call has failed, whether the backup is gone or has been away for too long."""
        now_s = self._context.clock.now()
        if not self._context.presence.away(backup.node):
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        if has_lost_disk(self._context, backup) or _has_left(self._context, backup):
            return True
        return self._since_s is not None and now_s - self._since_s >= self._replace_after_s


def has_lost_disk(context: Context, backup: Expected) -> bool:
    """Return whether the node is there with another data directory, which has nothing of what it had stored."""
    instance = context.membership.expected(backup.node).instance
    return not context.presence.away(backup.node) and instance not in ("", backup.instance)


def _has_left(context: Context, backup: Expected) -> bool:
    member = context.membership.get(backup.node)
    return member is not None and member.state == "left"
