"""Aggregates split in two: a partial one beside each source, and a final one over what those hand on.

Both give what the undivided one does: sums and counts are summed, extremes and logic are taken again, an average is a sum over a
count, and a variance comes of count, sum and sum of squares (its relative error grows with the square of mean over deviation).
Distinct values are counted with HyperLogLog sketches, which merge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from sbon_node.query.logical import Aggregate, Output, Scan, Select, Union, column, replaced

_AGAIN = frozenset(["min", "max", "bool_and", "bool_or", "every", "any", "some", "bit_and", "bit_or", "bit_xor"])
_SUMMED = frozenset({"count", "count_if", "sum", "try_sum"})
_SPREADS = {
    "stddev": ("sqrt", 1), "stddev_samp": ("sqrt", 1), "std": ("sqrt", 1), "stddev_pop": ("sqrt", 0),
    "variance": ("", 1), "var_samp": ("", 1), "var_pop": ("", 0),
}  # fmt: skip


@dataclass(slots=True)
class _Parts:
    """The partial aggregates, the final ones over them, and what each of the original ones is made of."""

    partial: list[Output]
    final: list[Output]
    made_of: dict[str, exp.Expr]

    def part(self, name: str, partial: exp.Expr, final: str) -> exp.Expr:
        self.partial.append(Output(name, partial))
        self.final.append(Output(name, _call(final, column(name))))
        return column(name)


def divided(select: Select) -> Select | None:
    """The same rows by way of partial aggregates, whose relations are marked by :class:`Aggregate.partial`; None where that
    cannot be: over state, over sessions, or with an aggregate that does not divide."""
    aggregate = select.child
    if not isinstance(aggregate, Aggregate) or aggregate.window is None or aggregate.window.kind != "window":
        return None
    parts = aggregate.child.children if isinstance(aggregate.child, Union) else (aggregate.child,)
    if not all(isinstance(one, Select) and isinstance(one.child, Scan) and _keeps_time(one, aggregate) for one in parts):
        return None
    pieces = _Parts([], [], {})
    for one in aggregate.aggregates:
        if not _divide(one, pieces):
            return None
    window = aggregate.window
    grouped = (window.start, window.end, *(key.name for key in aggregate.keys))
    keys = tuple(Output(name, column(name)) for name in grouped)
    names = [*grouped, *(one.name for one in pieces.partial)]
    passed = tuple(Output(name, column(name)) for name in names)
    partial = [replace(aggregate, child=one, aggregates=tuple(pieces.partial), partial=True) for one in parts]
    below = Union(tuple(Select(one, passed) for one in partial))
    final = Aggregate(below, None, keys, tuple(pieces.final), aggregate.start)
    made_of = {key.name: column(key.name) for key in keys} | pieces.made_of
    outputs = tuple(Output(one.name, replaced(one.expression, made_of)) for one in select.outputs)
    return Select(final, outputs, tuple(replaced(one, made_of) for one in select.conditions))


def _keeps_time(part: Select, aggregate: Aggregate) -> bool:
    """Whether the window's time is the stream's own event time, which alone moves the watermark of a source's operator."""
    assert isinstance(part.child, Scan)
    assert aggregate.window is not None
    time = next(one.expression for one in part.outputs if one.name == aggregate.window.time)
    return isinstance(time, exp.Column) and time.name == part.child.entry.declaration.event_time


def _divide(aggregate: Output, pieces: _Parts) -> bool:
    call = aggregate.expression
    name, arguments = str(call.this), call.expressions
    new = _names(aggregate.name)
    if name in _AGAIN:
        pieces.made_of[aggregate.name] = pieces.part(new(""), call, name)
    elif name in _SUMMED:
        pieces.made_of[aggregate.name] = pieces.part(new(""), call, "try_sum" if name == "try_sum" else "sum")
    elif name in ("avg", "mean"):
        total = pieces.part(new("sum"), _call("sum", arguments[0]), "sum")
        count = pieces.part(new("count"), _call("count", arguments[0]), "sum")
        pieces.made_of[aggregate.name] = exp.Div(this=total, expression=_call("nullif", count, exp.Literal.number(0)))
    elif name in _SPREADS:
        pieces.made_of[aggregate.name] = _spread(arguments[0], *_SPREADS[name], pieces, new)
    elif name == "hll_sketch_agg":
        pieces.made_of[aggregate.name] = pieces.part(new(""), call, "hll_union_agg")
    else:
        return False
    return True


def _spread(value: exp.Expr, root: str, less: int, pieces: _Parts, new: Callable[[str], str]) -> exp.Expr:
    double = exp.Cast(this=value.copy(), to=exp.DataType(this=exp.DType.DOUBLE))
    count = pieces.part(new("count"), _call("count", value), "sum")
    total = pieces.part(new("sum"), _call("sum", double), "sum")
    squares = pieces.part(new("squares"), _call("sum", exp.Mul(this=double.copy(), expression=double.copy())), "sum")
    mean_part = exp.Div(
        this=exp.Mul(this=total, expression=total.copy()), expression=_call("nullif", count, exp.Literal.number(0))
    )
    deviation = _call("greatest", exp.Sub(this=squares, expression=mean_part), exp.Literal.number("0"))
    rows = exp.Sub(this=count.copy(), expression=exp.Literal.number(less)) if less else count.copy()
    variance = exp.Div(this=deviation, expression=_call("nullif", rows, exp.Literal.number(0)))
    return _call(root, variance) if root else variance


def _names(name: str) -> Callable[[str], str]:
    return lambda part: f"{name}_{part}" if part else name


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[one.copy() for one in arguments])
