"""Prefix routing over near neighbours (Rowstron, Druschel, Middleware 2001, sections 2.2 and 2.5; Tapestry likewise).

A node's identifier is a hash of its name, read as digits. Its routing table has, in row r and column c, the nearest of all
nodes that share its first r digits and have c for the next. A message for a node goes from table to table. Each hop leads to a
node that shares at least a digit more with the target's identifier, so the message arrives after at most as many hops as there
are rows in use, on average some log n to the base of the digits. Its first hops, with many nodes to choose from, are short.

Where every node knows all others, a table is a function of the members and the latencies. A node that knows these can compute
another node's table, except where the two know different latencies. So no node is asked along the route.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence

ID_BITS = 128
DIGIT_BITS = 2
"""Bits of a digit, here of base 4: small tables, and some five hops among a thousand nodes. Pastry has base 16."""

Latencies = Callable[[str, Sequence[str]], Sequence[float]]
"""Latencies from one node to each of some others; milliseconds, infinite where unknown."""


@functools.lru_cache(maxsize=16_384)
def identifier(name: str) -> int:
    """Return BLAKE2b of the name in UTF-8, 16 bytes long, as a big-endian number."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=ID_BITS // 8).digest(), "big")


class PrefixRouting:
    """The routing tables of the nodes ``names``, computed from the latencies ``latencies_ms`` between them.

    An entry is computed when it is needed. ``digit_bits`` is the number of bits of a digit, a divisor of ``ID_BITS``.
    """

    def __init__(self, names: Iterable[str], latencies_ms: Latencies, digit_bits: int = DIGIT_BITS) -> None:
        self._members = sorted((identifier(name), name) for name in set(names))
        self._latencies_ms, self._bits = latencies_ms, digit_bits

    def entry(self, node: str, row: int, column: int) -> str | None:
        """Return the nearest node that shares the first ``row`` digits of ``node`` and has ``column`` for the next.

        Ties go to the first by name. The result is ``node`` itself, where that is its own digit, and None where there is none.
        """
        rest = ID_BITS - (row + 1) * self._bits
        first = ((identifier(node) >> (rest + self._bits) << self._bits) | column) << rest
        start, end = (bisect.bisect_left(self._members, (bound, "")) for bound in (first, first + (1 << rest)))
        names = sorted(name for _, name in self._members[start:end])
        if node in names or not names:
            return node if names else None
        latencies_ms = self._latencies_ms(node, names)
        return names[min(range(len(names)), key=lambda i: latencies_ms[i])]

    def table(self, node: str) -> dict[tuple[int, int], str]:
        """Return all entries by row and column, but for the node itself."""
        entries: dict[tuple[int, int], str] = {}
        for row in range(self._rows(node)):
            for column in range(1 << self._bits):
                entry = self.entry(node, row, column)
                if entry is not None and entry != node:
                    entries[row, column] = entry
        return entries

    def route(self, source: str, target: str) -> list[str]:
        """Return the nodes on the route to ``target``, a member, both ends included."""
        route, target_id = [source], identifier(target)
        while route[-1] != target:
            row = self._shared(identifier(route[-1]), target_id)
            column = (target_id >> (ID_BITS - (row + 1) * self._bits)) & ((1 << self._bits) - 1)
            hop = self.entry(route[-1], row, column)
            if hop is None:
                raise ValueError(f"{target} is not among the nodes")
            route.append(hop)
        return route

    def _shared(self, first: int, other: int) -> int:
        """Return the number of equal leading digits."""
        return (ID_BITS - (first ^ other).bit_length()) // self._bits

    def _rows(self, node: str) -> int:
        """Return one more than the longest prefix that the node shares with another."""
        own = identifier(node)
        return 1 + max((self._shared(own, other) for other, name in self._members if name != node), default=-1)
