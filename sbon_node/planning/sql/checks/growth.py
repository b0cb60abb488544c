"""Bounds on how much a fragment's expressions may lengthen values; nested literal bounds multiply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from sbon_node.planning.sql.checks.functions import LITERAL_BOUNDS, LITERAL_TEXTS
from sbon_node.planning.sql.syntax.dialect import begin_of, call_name
from sbon_node.planning.sql.syntax.lexical import refusal
from sbon_protocol.errors import SbonError

Sizes = Mapping[str, int]
"""Growth factors by lower-case column name. A factor is relative to the longest value of an input; missing columns count as 1."""

_JOINING = frozenset({"concat", "concat_ws", "array", "array_join", "overlay"})
"""Functions whose result is as long as all arguments together."""
_TIMES = {"hex": 2, "bin": 2, "base64": 2, "url_encode": 3}
_ADDING = frozenset({"lpad", "rpad"})
"""Functions that add at most a literal number of characters, which counts as one value more."""
_TRUTH = (exp.Predicate, exp.Not, exp.Connector)


class Growth:
    """Checks expressions over a row. ``most`` limits intermediate values and the total growth of the row."""

    def __init__(self, clean: str, most: int) -> None:
        self._clean, self._most = clean, most

    def of_row(self, outputs: Sequence[exp.Expr], sizes: Sizes) -> dict[str, int]:
        """Return the growth factors of a SELECT's columns. Raises :class:`SbonError` ``unbounded-function``."""
        sizes_of_row: dict[str, int] = {}
        gained = 0
        for output in outputs:
            if isinstance(output, exp.Star) or (isinstance(output.unalias(), exp.Column) and output.unalias().is_star):
                sizes_of_row.update(sizes)
                continue
            size = self.of(output.unalias(), sizes)
            gained += size - 1
            if gained > self._most:
                raise self._refused(f"a row may become more than {self._most} times as long", output)
            sizes_of_row[output.alias_or_name.lower()] = size
        return sizes_of_row

    def of(self, node: exp.Expr, sizes: Sizes) -> int:
        """Return the growth factor of an expression.

        Raises :class:`SbonError` ``unbounded-function`` for the innermost part that is too long.
        """
        if isinstance(node, exp.Column):
            return sizes.get(node.name.lower(), 1)
        terms = list(node.flatten()) if isinstance(node, exp.Connector) else list(node.iter_expressions())
        inner = [self.of(term, sizes) for term in terms]
        if isinstance(node, _TRUTH):
            return 1
        size = _size(node, inner)
        if size > self._most:
            raise self._refused(f"this may become more than {self._most} times as long as a value", node)
        return size

    def _refused(self, message: str, node: exp.Expr) -> SbonError:
        """Return an error without the text; the planner adds the user's text."""
        return refusal("unbounded-function", message, self._clean, begin_of(self._clean, node), offending="", hint=_HINT)


_HINT = "nest fewer functions that make values longer, or give them smaller numbers"


def _size(node: exp.Expr, inner: Sequence[int]) -> int:
    if isinstance(node, exp.DPipe):
        return sum(inner)
    if not isinstance(node, exp.Anonymous):
        return max(inner, default=1)
    name, first = call_name(node), inner[0] if inner else 1
    if name in _JOINING:
        return max(1, sum(inner)) * (len(inner) if name == "array_join" else 1)
    if name in _TIMES:
        return _TIMES[name] * first
    if name in _ADDING:
        return first + 1
    measure = _MEASURES.get(name)
    return measure(node) * first if measure is not None else max(inner, default=1)


def _repeated(node: exp.Anonymous) -> int:
    """Return the literal number of repetitions; 1 if it is missing, which Spark refuses."""
    position, _ = LITERAL_BOUNDS["repeat"]
    return max(1, int(node.expressions[position].name)) if len(node.expressions) > position else 1


def _replaced(node: exp.Anonymous) -> int:
    """Return the growth of a replacement. The literal text may replace each character, and also an empty match before it."""
    position, _ = LITERAL_TEXTS["replace"]
    return 1 + len(node.expressions[position].name) if len(node.expressions) > position else 1


_MEASURES: Mapping[str, Callable[[exp.Anonymous], int]] = {
    "repeat": _repeated,
    "replace": _replaced,
    "regexp_replace": _replaced,
}
