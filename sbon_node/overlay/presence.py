"""Whether a node is there, and when a part of this node takes another one to be gone for good. Pure: it is told the time.

Membership knows five states, and any of them but ``left`` may pass. Those that need another node differ in how sure they must be
that nothing of what it had comes back, so each has a :class:`Rule`; :data:`RULES` is the table of them all, with their graces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple

from sbon_node.model.times import utc_text
from sbon_node.overlay.membership.table import GONE, REACHABLE, Table
from sbon_protocol.messages import MemberState

Standing = MemberState | Literal["unknown"]
"""How this node sees another one; unknown is one of which no member has told it, or of which all have forgotten."""
Gone = Literal["", "left", "lost-disk", "missing"]
"""Why a node does not come back with what it had; empty while it may."""

NEVER: frozenset[Standing] = frozenset()
ALIVE: frozenset[Standing] = frozenset({"alive"})
LEFT: frozenset[Standing] = frozenset({"left"})
UNKNOWN: frozenset[Standing] = frozenset({"unknown"})
SILENT: frozenset[Standing] = frozenset({"dead", "unknown"})
ABSENT: frozenset[Standing] = frozenset({"away", "dead", "left", "unknown"})
ANY: frozenset[Standing] = REACHABLE | ABSENT


class Rule(NamedTuple):
    """When one kind of decision takes a node to be gone for good."""

    meaning: str
    """The decision."""
    setting: str
    """The setting that is the grace, in seconds; empty where there is none."""
    at_once: frozenset[Standing]
    """Standings that need no grace."""
    after: frozenset[Standing] = NEVER
    """Standings that must last for the grace."""
    replaced_in: frozenset[Standing] = NEVER
    """Standings in which another data directory under the name proves that the node has lost its own."""
    doubts_itself: bool = True
    """Whether this node, once it is leaving, judges itself as it judges others."""


AS_HOST = Rule("a backup goes on with an operator or source of the node", "backups.check_s", GONE, UNKNOWN, ALIVE)
AS_SINK = Rule("another node takes over a sink of the node, or it ends", "control.orphan_check_s", GONE, UNKNOWN, ALIVE, False)
AS_PART = Rule("a part of a query that only the node had is shown as lost", "membership.tombstone_s", LEFT, UNKNOWN, ANY)
AS_ACCEPTOR = Rule("another node replaces the node as an acceptor", "control.replace_s", LEFT, SILENT, ANY)
AS_SUBMITTER = Rule("a query that the node was placing is ended", "control.takeover_s", NEVER, ABSENT, ANY)
AS_BACKUP = Rule("a host chooses another backup", "backups.replace_after_s", LEFT, ABSENT, REACHABLE)
AS_FOLLOWER = Rule("the node need not be told that a move is given up", "", LEFT | UNKNOWN, replaced_in=ANY)
AS_AWAITED = Rule("nobody expects the node to answer or return soon", "", GONE | UNKNOWN)
AS_FORMER_HOST = Rule("the node need not be asked to delete its parts of a query that is over", "", LEFT)

RULES = (AS_HOST, AS_SINK, AS_PART, AS_ACCEPTOR, AS_SUBMITTER, AS_BACKUP, AS_FOLLOWER, AS_AWAITED, AS_FORMER_HOST)


def may_be(known: str, instance: str) -> bool:
    """Return whether a node ``known`` by that instance may be ``instance``; it may be any if its own is not known."""
    return known in ("", instance)


class Presence:
    """Tells who is there or gone for good, by the table of members. ``graces`` are the seconds of the rules' settings."""

    def __init__(self, table: Table, now_s: Callable[[], float], wall_ms: Callable[[], int], graces: Mapping[str, float]) -> None:
        self._table, self.now_s, self._wall_ms, self._graces = table, now_s, wall_ms, graces
        self._started_s = now_s()

    # -- now ----------------------------------------------------------------------------------------------------------

    def away(self, node: str) -> str:
        """Return why membership does not count a node as present; empty if it is present, as this node is to itself."""
        if node == self._table.own.name or node in self._table.there:
            return ""
        member = self._table.member(node)
        return "is not a member" if member is None else "has left" if member.state == "left" else f"is {member.state}"

    def absence(self, node: str) -> str:
        """Return for users why membership misses a node, as :meth:`away`, and since when."""
        why, row = self.away(node), self._table.get(node)
        if not why or row is None:
            return why
        return f"{why} since {utc_text(self._wall_ms() - int(1000 * (self.now_s() - row.since)))}"

    def no_answer(self, node: str, role: str = "") -> str:
        """Return for users that a node, with its ``role``, gives no answer and, of one that membership misses, since when."""
        why, silent = self.absence(node), f"no answer from {node}{role and f', {role}'}"
        return f"{silent}: it {why}" if why else silent

    def has(self, node: str, instance: str) -> bool:
        """Return whether the node is present, and with that data directory."""
        return not self.away(node) and self._is_instance(node, instance)

    def has_lost_disk(self, node: str, instance: str) -> bool:
        """Return whether the node is present with another data directory, which has nothing of what it had stored."""
        return not self.away(node) and not self._is_instance(node, instance)

    # -- for good -----------------------------------------------------------------------------------------------------

    def gone(self, rule: Rule, node: str, instance: str = "", missed_s: float | None = None) -> Gone:
        """Return why a node is gone for good by the rule, or nothing.

        An empty ``instance`` is any. ``missed_s`` is for how long the caller has missed the node, which :class:`Watch` remembers;
        by default as long as this node runs: after a start members come one after another.
        """
        standing = self._standing(rule, node)
        if standing in rule.at_once:
            return "left" if standing == "left" else "missing"
        if standing in rule.replaced_in and instance and not self._is_instance(node, instance):
            return "lost-disk"
        return "missing" if standing in rule.after and self._is_over(rule, missed_s) else ""

    def why_gone(self, node: str, instance: str) -> str:
        """Return for users why a part of a query is lost that only that instance of the node had; empty while it may return."""
        match self.gone(AS_PART, node, instance):
            case "left":
                return f"{node} has left the cluster"
            case "lost-disk":
                return f"{node} has lost its data directory: it {'was' if self.away(node) else 'is'} back with another one"
            case "missing":
                return f"{node} has not been there for {self._graces[AS_PART.setting]:g} s"
            case _:
                return ""

    def watch(self, rule: Rule) -> Watch:
        """Return a memory of the nodes that its owner misses, for a rule whose grace begins when they are first missed."""
        return Watch(self, rule)

    def misses(self, rule: Rule, node: str) -> bool:
        """Return whether the node is in a standing that must last for the rule's grace."""
        return self._standing(rule, node) in rule.after

    def _standing(self, rule: Rule, node: str) -> Standing:
        member = self._table.member(node)
        if member is None:
            return "unknown"
        return "alive" if node == self._table.own.name and not rule.doubts_itself else member.state

    def _is_instance(self, node: str, instance: str) -> bool:
        member = self._table.member(node)
        return member is None or may_be(member.instance, instance)

    def _is_over(self, rule: Rule, missed_s: float | None) -> bool:
        grace_s = self._graces[rule.setting]
        return self.now_s() - self._started_s > grace_s if missed_s is None else missed_s >= grace_s


class Watch:
    """Judges nodes by one rule, and remembers since when it misses them."""

    def __init__(self, presence: Presence, rule: Rule) -> None:
        self._presence, self._rule = presence, rule
        self._since_s: dict[str, float] = {}

    def gone(self, node: str, instance: str = "", key: str = "") -> Gone:
        """Return why a node is gone for good, as :meth:`Presence.gone`; it is missed since this was first asked.

        Each ``key``, by default the node's name, has a time of its own.
        """
        if not self._presence.misses(self._rule, node):
            self.forget(key or node)
            return self._presence.gone(self._rule, node, instance, 0.0)
        now_s = self._presence.now_s()
        return self._presence.gone(self._rule, node, instance, now_s - self._since_s.setdefault(key or node, now_s))

    def forget(self, key: str) -> None:
        """Begin the grace anew when the node is missed again."""
        self._since_s.pop(key, None)

    def keep(self, keys: Collection[str]) -> None:
        """Forget all others."""
        self._since_s = {key: since_s for key, since_s in self._since_s.items() if key in keys}
