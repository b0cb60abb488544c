"""Exact minima of sums of unary and pairwise costs, by variable elimination (Bertele, Brioschi, 1972).

On a tree this is the dynamic program from the leaves up: each table has two axes. A graph with cycles needs tables of more axes,
its width plus one; for few candidates they are small as well. A backward pass gives, for every variable and each of its values,
the least total with that value (its min-marginals).
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_TABLE = 20_000_000
"""Most entries of a table; 160 MB."""


class TooWideError(Exception):
    """A table would have more than ``MAX_TABLE`` entries."""


class Elimination:
    """Minimises sum_v unary[v][x_v] + sum_(u,v) pairwise[u, v][x_u, x_v] over all x.

    ``unary`` are vectors [k_v], one for each variable 0 .. n-1; ``pairwise`` matrices [k_u, k_v] with u < v; costs are finite.
    Raises :class:`TooWideError`.
    """

    def __init__(self, unary: Sequence[Floats], pairwise: Mapping[tuple[int, int], Floats]) -> None:
        self._sizes = [len(costs) for costs in unary]
        self._order, self._scopes = _plan(self._sizes, pairwise)
        self._turn = {variable: turn for turn, variable in enumerate(self._order)}
        self._parents = {v: min(scope, key=self._turn.__getitem__, default=None) for v, scope in self._scopes.items()}
        self._tables: dict[int, Floats] = {}
        self._messages: dict[int, Floats] = {}
        self.least = 0.0
        """The minimum."""
        waiting: dict[int, list[tuple[tuple[int, ...], Floats]]] = {variable: [] for variable in self._order}
        for (one, other), costs in pairwise.items():
            waiting[min(one, other, key=self._turn.__getitem__)].append(((one, other), costs))
        for variable in self._order:
            axes = (variable, *self._scopes[variable])
            table = unary[variable].reshape(-1, *(1,) * len(self._scopes[variable]))
            for scope, costs in waiting[variable]:
                table = table + _spread(costs, scope, axes)
            self._tables[variable] = table = np.broadcast_to(table, [self._sizes[v] for v in axes])
            message = self._messages[variable] = table.min(axis=0)
            parent = self._parents[variable]
            if parent is None:
                self.least += float(message)
            else:
                waiting[parent].append((self._scopes[variable], message))

    def solution(self) -> list[int]:
        """Return the values of a minimum; of equals, the first values."""
        chosen = [0] * len(self._order)
        for variable in reversed(self._order):
            table: Floats = self._tables[variable]
            for other in reversed(self._scopes[variable]):
                table = table[..., chosen[other]]
            chosen[variable] = int(table.argmin())
        return chosen

    def marginals(self) -> list[Floats]:
        """Return for each variable a vector [k_v]: the least total with each of its values."""
        marginals: list[Floats] = [np.empty(0)] * len(self._order)
        beliefs: dict[int, Floats] = {}
        for variable in reversed(self._order):
            belief = self._tables[variable]
            parent = self._parents[variable]
            if parent is None:
                belief = belief + (self.least - float(self._messages[variable]))
            else:
                axes = (variable, *self._scopes[variable])
                rest = (parent, *self._scopes[parent])
                gone = tuple(i for i, v in enumerate(rest) if v not in axes)
                kept = tuple(v for v in rest if v in axes)
                without = beliefs[parent].min(axis=gone) - _spread(self._messages[variable], self._scopes[variable], kept)
                belief = belief + _spread(without, kept, axes)
            beliefs[variable] = belief
            marginals[variable] = belief.min(axis=tuple(range(1, belief.ndim)))
        return marginals


def _plan(sizes: Sequence[int], pairwise: Mapping[tuple[int, int], Floats]) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """Return the order of elimination, smallest table first, and the other variables of each table."""
    near: dict[int, set[int]] = {variable: set() for variable in range(len(sizes))}
    for operator, other in pairwise:
        near[operator].add(other)
        near[other].add(operator)
    order: list[int] = []
    scopes: dict[int, tuple[int, ...]] = {}
    entries = {variable: (math.prod(sizes[o] for o in scope) * sizes[variable], variable) for variable, scope in near.items()}
    while near:
        variable = min(entries, key=entries.__getitem__)
        if entries.pop(variable)[0] > MAX_TABLE:
            raise TooWideError
        scope = near.pop(variable)
        for other in scope:
            near[other] |= scope - {other}
            near[other].discard(variable)
        for other in scope:
            entries[other] = (math.prod(sizes[o] for o in near[other]) * sizes[other], other)
        order.append(variable)
        scopes[variable] = tuple(sorted(scope))
    return order, scopes


def _spread(costs: Floats, scope: tuple[int, ...], axes: tuple[int, ...]) -> Floats:
    """Return ``costs`` over ``scope`` as a view that broadcasts over ``axes``, which contain ``scope``."""
    axis_of = [axes.index(variable) for variable in scope]
    order = sorted(range(len(scope)), key=axis_of.__getitem__)
    shape = [1] * len(axes)
    for position in range(len(scope)):
        shape[axis_of[position]] = costs.shape[position]
    return costs.transpose(order).reshape(shape)
