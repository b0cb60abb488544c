"""Decompose aggregates: a partial aggregate beside each source, and a final aggregate over their results.

Decomposed and undivided aggregates give the same result. Sums and counts are summed; extremes and logical aggregates are
applied again; an average is a sum over a count. A variance is computed from count, sum and sum of squares: exactly for whole
numbers, otherwise with an error that grows with the square of mean over deviation, so only users who ask for it get it. Distinct
values are counted with HyperLogLog sketches, which merge; the undivided aggregate uses the same sketch, so that both agree.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import (
    Aggregate,
    Output,
    Relation,
    Scan,
    Select,
    Union,
    as_they_are,
    children_of,
    column,
    replaced,
)

_AGAIN = frozenset(["min", "max", "bool_and", "bool_or", "every", "any", "some", "bit_and", "bit_or", "bit_xor"])
_SPREADS = {
    "stddev": ("sqrt", 1), "stddev_samp": ("sqrt", 1), "std": ("sqrt", 1), "stddev_pop": ("sqrt", 0),
    "variance": ("", 1), "var_samp": ("", 1), "var_pop": ("", 0),
}  # fmt: skip
_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_SMALL = _WHOLE - {"bigint"}
"""Whole-number types whose squares sum in 38 digits."""
_NUMBERS = _WHOLE | {"float", "double"}
_SKETCHED = {"tinyint": "bigint", "smallint": "bigint", "int": "", "bigint": "", "string": ""}
"""Maps types that a sketch accepts to the cast's type; empty for no cast."""


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A SELECT over an aggregate, undivided and decomposed; ``exact`` if both always give the same result."""

    select: Select
    undivided: Select
    decomposed: Select
    exact: bool


def candidates(query: Relation) -> list[Select]:
    """Return the aggregates whose shape can be decomposed: windows over the event time of unmodified streams."""
    selects: list[Select] = []
    for select in _selects(query):
        if _is_decomposable(select) and select not in selects:
            selects.append(select)
    return selects


def arguments(select: Select) -> tuple[Select, list[str]]:
    """Return the arguments of a candidate's aggregates.

    The result is a SELECT over the stream, and the aggregate to which each of its columns belongs.
    """
    aggregate = _aggregate(select)
    first = _parts(aggregate)[0]
    made_of = {output.name: output.expression for output in first.outputs}
    outputs: list[Output] = []
    names: list[str] = []
    for output in aggregate.aggregates:
        for argument in output.expression.expressions[:1]:
            if not isinstance(argument, exp.Star):
                outputs.append(Output(f"argument_{len(outputs)}", replaced(argument, made_of)))
                names.append(output.name)
    return Select(first.child, tuple(outputs)), names


def decompose_aggregate(select: Select, types: Mapping[str, str], *, exact_overflow: bool = False) -> Decomposition | None:
    """Return a candidate undivided and decomposed, or None if an aggregate cannot be decomposed.

    ``types`` are the types of the aggregates' arguments. :class:`Aggregate.partial` marks the relations of partial aggregates.
    With ``exact_overflow``, aggregates that may overflow stay undivided: the query continues after an overflow, and partial sums
    that are NULL would be missing from the total.
    """
    aggregate = _aggregate(select)
    parts = DecomposedAggregates(types, aggregate.names, exact_overflow=exact_overflow)
    if not all(parts.take(output) for output in aggregate.aggregates):
        return None
    at_once = replace(aggregate, aggregates=tuple(parts.undivided))
    assert aggregate.window is not None
    grouped = (aggregate.window.start, aggregate.window.end, *(key.name for key in aggregate.keys))
    passed = as_they_are((*grouped, *(output.name for output in parts.partial)))
    partial = [replace(aggregate, child=child, aggregates=tuple(parts.partial), partial=True) for child in _parts(aggregate)]
    below = Union(tuple(Select(one, passed) for one in partial))
    final = Aggregate(below, None, as_they_are(grouped), tuple(parts.final), aggregate.start)
    same = {name: column(name) for name in grouped}
    undivided, decomposed = _over(select, at_once, same | parts.of_undivided), _over(select, final, same | parts.of_final)
    return Decomposition(select, undivided, decomposed, parts.exact)


def _over(select: Select, aggregate: Aggregate, made_of: dict[str, exp.Expr]) -> Select:
    outputs = tuple(Output(output.name, replaced(output.expression, made_of)) for output in select.outputs)
    return Select(aggregate, outputs, tuple(replaced(condition, made_of) for condition in select.conditions))


# -- shapes ---------------------------------------------------------------------------------------------------------------


def _selects(relation: Relation) -> Iterator[Select]:
    if isinstance(relation, Select):
        yield relation
    for child in children_of(relation):
        yield from _selects(child)


def _is_decomposable(select: Select) -> bool:
    child = select.child
    if not isinstance(child, Aggregate) or child.window is None or child.window.kind != "window" or not child.aggregates:
        return False
    below = child.child.children if isinstance(child.child, Union) else (child.child,)
    return all(isinstance(one, Select) and isinstance(one.child, Scan) and _keeps_time(one, child) for one in below)


def _keeps_time(select: Select, aggregate: Aggregate) -> bool:
    """Return whether the window's time is the stream's own event time. Only that moves the watermark of a source's operator."""
    assert isinstance(select.child, Scan)
    assert aggregate.window is not None
    time = next(output.expression for output in select.outputs if output.name == aggregate.window.time)
    return isinstance(time, exp.Column) and time.name == select.child.entry.declaration.event_time


def _aggregate(select: Select) -> Aggregate:
    assert isinstance(select.child, Aggregate)
    return select.child


def _parts(aggregate: Aggregate) -> list[Select]:
    below = aggregate.child.children if isinstance(aggregate.child, Union) else (aggregate.child,)
    return [child for child in below if isinstance(child, Select)]


# -- aggregates -----------------------------------------------------------------------------------------------------------


class DecomposedAggregates:
    """Partial, final and undivided aggregates, and the final expression of each original aggregate."""

    def __init__(self, types: Mapping[str, str], taken: Iterable[str], *, exact_overflow: bool) -> None:
        self._exact_overflow = exact_overflow
        self.exact = True
        self._types = types
        self._taken = {name.lower() for name in taken}
        self.partial: list[Output] = []
        self.final: list[Output] = []
        self.undivided: list[Output] = []
        self.of_final: dict[str, exp.Expr] = {}
        self.of_undivided: dict[str, exp.Expr] = {}

    def take(self, aggregate: Output) -> bool:
        """Decompose an aggregate; return whether that is possible."""
        call, name, type_ = aggregate.expression, aggregate.name, self._types.get(aggregate.name, "")
        function = str(call.this)
        if function == "approx_count_distinct":
            return self._take_sketch(aggregate, type_)
        self.undivided.append(aggregate)
        self.of_undivided[name] = column(name)
        if function in _AGAIN:
            self.of_final[name] = self._part(name, call, function)
        elif function in ("count", "count_if"):
            self.of_final[name] = self._part(name, call, "sum")
        elif (function == "sum" and not self._exact_overflow) or (function in ("sum", "try_sum") and _fits(type_)):
            total, decimal = self._part(name, call, function), _sum_of(type_)
            self.of_final[name] = _cast(total, decimal) if decimal else total  # A sum of decimal sums has more digits.
        elif function in ("avg", "mean") and type_ in _NUMBERS:
            self.of_final[name] = self._average(name, call.expressions[0])
        elif function in _SPREADS and type_ in _NUMBERS:
            self.exact = self.exact and type_ in _SMALL
            self.of_final[name] = self._spread(name, call.expressions[0], type_, *_SPREADS[function])
        else:
            return False
        return True

    def _take_sketch(self, aggregate: Output, type_: str) -> bool:
        if type_ not in _SKETCHED:
            return False
        name, value = aggregate.name, aggregate.expression.expressions[0]
        sketch = _call("hll_sketch_agg", _cast(value, _SKETCHED[type_]) if _SKETCHED[type_] else value)
        self.undivided.append(Output(name, sketch))
        # A sketch that was never merged uses another estimator.
        self.of_undivided[name] = _call("hll_sketch_estimate", _call("hll_union", column(name), column(name)))
        merged = self._part(name, sketch, "hll_union_agg")
        self.of_final[name] = _call("hll_sketch_estimate", _call("hll_union", merged, merged))
        return True

    def _part(self, name: str, partial: exp.Expr, final: str) -> exp.Expr:
        self.partial.append(Output(name, partial))
        self.final.append(Output(name, _call(final, column(name))))
        return column(name)

    def _new_part(self, name: str, partial: exp.Expr) -> exp.Expr:
        """Add a column of partial sums."""
        candidates = (name, *(f"{name}_{n}" for n in range(1, len(self._taken) + 1)))
        fresh = next(candidate for candidate in candidates if candidate.lower() not in self._taken)
        self._taken.add(fresh.lower())
        return self._part(fresh, partial, "sum")

    def _average(self, name: str, value: exp.Expr) -> exp.Expr:
        total = self._new_part(f"{name}_sum", _call("sum", _cast(value, "double")))
        count = self._new_part(f"{name}_count", _call("count", value))
        return _quotient(total, count)

    def _spread(self, name: str, value: exp.Expr, type_: str, root: str, less: int) -> exp.Expr:
        number = _cast(value, "decimal(19,0)" if type_ in _SMALL else "double")
        count = self._new_part(f"{name}_count", _call("count", value))
        total = self._new_part(f"{name}_sum", _call("sum", number))
        squares = self._new_part(f"{name}_squares", _call("sum", exp.Mul(this=number, expression=number.copy())))
        if type_ in _SMALL:
            total, squares = _cast(total, "decimal(38,0)"), _cast(squares, "decimal(38,0)")
        square = exp.Mul(this=total, expression=total.copy())
        scaled = exp.Sub(this=exp.Mul(this=count.copy(), expression=squares), expression=square)
        deviations = _call("greatest", _cast(exp.Paren(this=scaled), "double"), _cast(exp.Literal.number(0), "double"))
        rows = exp.Paren(this=exp.Sub(this=count.copy(), expression=exp.Literal.number(less))) if less else count.copy()
        variance = _quotient(_quotient(deviations, count), rows)
        return _call(root, variance) if root else variance


def _fits(type_: str) -> bool:
    """Return whether no sum of the type overflows. Otherwise a part could be NULL where the whole is not, or the reverse."""
    summed = _sum_of(type_)
    return type_ in _SMALL | {"float", "double"} or (summed != "" and not summed.startswith("decimal(38,"))


def _sum_of(type_: str) -> str:
    """Return Spark's type of a sum of decimals. Empty for other types, whose sums can be summed without a cast."""
    if not type_.startswith("decimal("):
        return ""
    precision, scale = (int(number) for number in type_.removeprefix("decimal(").removesuffix(")").split(","))
    return f"decimal({min(38, precision + 10)},{scale})"


def _quotient(dividend: exp.Expr, other: exp.Expr) -> exp.Div:
    return exp.Div(this=dividend.copy(), expression=_call("nullif", other, exp.Literal.number(0)), safe=True)


def _cast(value: exp.Expr, type_: str) -> exp.Cast:
    return exp.Cast(this=value.copy(), to=exp.DataType.build(type_, dialect="spark"))


def _call(name: str, *arguments_: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments_])
