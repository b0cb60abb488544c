"""Users who move operators, and let nodes leave."""

import time
from collections.abc import Collection

from sbon import SbonError
from sbon.local.cluster import LocalCluster
from sbon.local.node import LocalNode
from sbon.model import Moved, NodeDrained
from sbon_lab.chaos.asking import Asking
from sbon_protocol.api.durability import REPLICATED
from sbon_protocol.api.states.operator_states import RUNNING

LEAVES_WITHIN_S = 240.0
"""Longest time until a node has left."""
AGAIN_S = 1.0
IN_USE = "node-in-use"


class User:
    """Requests of a user; each raises :class:`SbonError`."""

    def __init__(self, cluster: LocalCluster, pinned: Collection[str], asking: Asking) -> None:
        self._cluster, self._pinned, self._asking = cluster, pinned, asking

    def choose_move(self, target: str, lot: float) -> tuple[str, str, str]:
        """Return query, operator and host of one that can move to ``target``; local ones only to nodes that keep their disk."""
        found = [
            (info.id, one.id, one.node)
            for info in self._asking.live()
            if info.durability == REPLICATED or target in self._pinned
            for one in info.operators
            if one.state == RUNNING and one.move is None and not one.ended and one.node != target
        ]
        if not found:
            raise SbonError("operator-unknown", f"no running operator could move to {target}")
        return sorted(found)[int(lot * len(found))]

    def move(self, query: str, operator: str, target: str) -> None:
        for event in self._asking.client().move_operator(query, operator, target):
            if isinstance(event, Moved):
                return
        raise SbonError("node-unreachable", f"the node ended the connection before {operator} had moved")

    def let_leave(self, node: LocalNode, *, drain: bool) -> None:
        """Let a node leave, by a drain or by moves of its operators; return once its processes have ended."""
        deadline_s = time.monotonic() + LEAVES_WITHIN_S
        while True:
            try:
                if drain:
                    self._drain(node)
                else:
                    self._clear(node)
                    node.client.leave()
                break
            except SbonError as error:
                if not node.running:
                    break
                if time.monotonic() > deadline_s:
                    raise SbonError("timeout", f"{node.name} has not left: {error}") from error
            time.sleep(AGAIN_S)
        node.wait(LEAVES_WITHIN_S)

    def _drain(self, node: LocalNode) -> None:
        *_, end = node.client.drain()
        if not isinstance(end, NodeDrained) or not end.has_left:
            stays = "; ".join(end.stays) if isinstance(end, NodeDrained) else "the connection ended"
            raise SbonError(IN_USE, f"{node.name} stays: {stays}")

    def _clear(self, node: LocalNode) -> None:
        """Move all operators of a node to others, where these have room."""
        for info in self._asking.live():
            for operator in info.operators:
                if operator.node == node.name:
                    self._move_anywhere(info.id, operator.id, node.name)

    def _move_anywhere(self, query: str, operator: str, origin: str) -> None:
        failure = SbonError("no-capacity", f"no node takes {operator}")
        for node in self._cluster.nodes:
            if node.name == origin or not node.running:
                continue
            try:
                self.move(query, operator, node.name)
                return
            except SbonError as error:
                failure = error
        raise failure
