"""Capacity assumed at a node that refuses several operators at once."""

from __future__ import annotations

from typing import Any

import pytest

from sbon_node.placement.model.network_view import Answer
from sbon_node.placement.model.problem import Edge, Operator, PlacementProblem
from sbon_node.placement.selection.capacity import KnownCapacity
from sbon_protocol.api.operators import Needs

NEEDS = Needs(cores=0.1, memory_mb=10.0)
LEFT = Needs(cores=8.0, memory_mb=8000.0, bandwidth_bytes_s=1e9)
NAMES = "abcd"


class Limited:
    """A view of one node that has room in plenty, and takes ``most`` operators."""

    def __init__(self, most: int) -> None:
        self.most = most

    def nodes(self) -> list[str]:
        return ["n"]

    async def ask(self, node: str, needs: Needs) -> Answer:
        count = round(needs.cores / NEEDS.cores)
        accepted = count <= self.most
        return Answer(accepted=accepted, reason="" if accepted else f"takes {self.most} operators", free=LEFT)


def room_at(most: int) -> KnownCapacity:
    view: Any = Limited(most)
    operators = tuple(Operator(id=name, needs=NEEDS) for name in NAMES)
    edges = tuple(Edge(*link) for link in (("p", "a", 1.0), ("a", "b", 1.0), ("b", "c", 1.0), ("c", "d", 1.0), ("d", "s", 1.0)))
    return KnownCapacity(PlacementProblem(pinned={"p": "n", "s": "n"}, operators=operators, edges=edges), view)


@pytest.mark.parametrize("asked", [2, 3, 4])
async def test_a_node_that_refuses_n_operators_for_their_number_is_taken_for_one_less(asked: int) -> None:
    capacity = room_at(asked - 1)
    assert not await capacity.grants(dict.fromkeys(NAMES[:asked], "n"))
    free = capacity.free(["n"])[0]
    assert free.tolist() == [LEFT.cores, LEFT.memory_mb, LEFT.bandwidth_bytes_s, asked - 1]
    assert all(not nodes for nodes in capacity.rejected.values()), "each alone would fit"
    assert await capacity.grants(dict.fromkeys(NAMES[: asked - 1], "n"))
