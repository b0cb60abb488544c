"""Groups of one query from the groups of another: the same groups, fewer keys, or coarser windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import Aggregate, Input, Output, Select, Window, column, replaced
from sbon_node.planning.sql.rewrite.canonical import canonical_expression, plain_conjuncts
from sbon_node.planning.sql.rewrite.decompose import DecomposedAggregates
from sbon_node.planning.sql.sharing.implication import Facts, Failures, missing
from sbon_node.planning.sql.sharing.normal_form import NotProvable, Rows, View, by_text, computed, meaning, rows_of
from sbon_node.planning.sql.syntax.dialect import call_name
from sbon_node.planning.sql.syntax.durations import sql_interval
from sbon_protocol.api.columns import Schema

_FRACTIONS = ("float", "double")
_COUNTED_TYPES = {"count": "bigint", "count_if": "bigint"}
_AFTER_END_MS = 1
"""Distance from a window's end, to which the window belongs, to the coarser window's end behind it."""


@dataclass(frozen=True, slots=True)
class Groups:
    """A SELECT over an aggregate: the grouped rows, and keys and aggregates as expressions over their base columns."""

    select: Select
    aggregate: Aggregate
    rows: Rows
    keys: Mapping[str, exp.Expr]
    aggregates: Mapping[str, exp.Expr]

    @staticmethod
    def of(select: Select, views: Sequence[View]) -> Groups:
        aggregate = select.child
        assert isinstance(aggregate, Aggregate)
        rows = rows_of(aggregate.child, views)
        keys = {key.name: rows.put(key.expression) for key in aggregate.keys}
        return Groups(select, aggregate, rows, keys, {of.name: rows.put(of.expression) for of in aggregate.aggregates})

    @property
    def time(self) -> str:
        """The window's time by its meaning; empty without a window."""
        window = self.aggregate.window
        return canonical_expression(self.rows.columns[window.time]) if window is not None else ""

    @property
    def expressions(self) -> list[exp.Expr]:
        """All that is computed of the rows, before groups come out."""
        time = [self.rows.columns[self.aggregate.window.time]] if self.aggregate.window is not None else []
        return [*self.rows.conditions, *time, *self.keys.values(), *self.aggregates.values()]

    def selected(self) -> Rows:
        """Return the SELECT's rows over columns named by the meaning of window, keys and aggregates."""
        window = self.aggregate.window
        columns: dict[str, exp.Expr] = {}
        if window is not None:
            later = exp.Add(this=_START.copy(), expression=sql_interval(window.size_ms))
            columns = {window.start: _START, window.end: later if window.kind == "window" else _END}
        types = {_START.name: "timestamp", _END.name: "timestamp"}
        for name, expression in (*self.keys.items(), *self.aggregates.items()):
            known = meaning(canonical_expression(expression))
            columns[name] = known
            plain = isinstance(expression, exp.Column) and name in self.keys
            types[known.name] = (
                self.rows.types.get(expression.name, "") if plain else _COUNTED_TYPES.get(call_name(expression), "")
            )
        return Rows("", columns, (), types).selected(self.select)


_START, _END = meaning("start"), meaning("end")


def missing_below(wanted: Groups, offered: Groups) -> list[exp.Expr]:
    """Return the conditions on the wanted query's rows that are still to be tested, on keys of the offered groups."""
    if wanted.rows.base != offered.rows.base or wanted.time != offered.time:
        raise NotProvable
    below = missing(wanted.rows.conditions, offered.rows.conditions, wanted.rows.types)
    if below is None:
        raise NotProvable
    own = [] if below else wanted.expressions
    if not Failures(own, wanted.rows.types).none_in(offered.expressions):
        raise NotProvable
    begun = Facts(_after_start(wanted), wanted.rows.types)
    return [condition for condition in below if not begun.imply(condition)]


def _after_start(groups: Groups) -> list[exp.Expr]:
    """Return conditions on the rows' time that follow from conditions on the window's start: no row is earlier than that."""
    window = groups.aggregate.window
    if window is None or window.kind != "window":
        return []
    time = groups.rows.columns[window.time]
    return [
        type(one)(this=time.copy(), expression=one.expression.copy())
        for one in plain_conjuncts(groups.select.conditions)
        if isinstance(one, exp.GTE | exp.GT)
        and isinstance(one.this, exp.Column)
        and one.this.name == window.start
        and one.expression.find(exp.Column) is None
    ]


def are_same(wanted: Groups, offered: Groups) -> bool:
    """Return whether both have the same windows and keys."""
    a, b = wanted.aggregate.window, offered.aggregate.window
    same = a == b if a is None or b is None else _lengths(a) == _lengths(b)
    return same and set(by_text(wanted.keys.items())) == set(by_text(offered.keys.items()))


def _lengths(window: Window) -> tuple[str, int, int, int]:
    return window.kind, window.size_ms, window.slide_ms, window.offset_ms % window.slide_ms


def on_keys(conditions: Sequence[exp.Expr], groups: Groups) -> list[exp.Expr]:
    """Return conditions on rows as conditions on the groups' keys, by their meaning."""
    exact = [of for of in groups.keys.values() if not _may_be_fraction(of, groups.rows.types)]
    keys = {text: meaning(text).name for text in map(canonical_expression, exact)}
    return plain_conjuncts(computed(condition, keys) for condition in conditions)


def _may_be_fraction(expression: exp.Expr, types: Mapping[str, str]) -> bool:
    """Return whether a key may be a fraction, of which equal values may differ in bits: grouping makes 0.0 of -0.0."""
    if isinstance(expression, exp.Column):
        return types.get(expression.name, "double") in _FRACTIONS
    return call_name(expression) not in ("date_trunc", "upper", "lower", "length") and not isinstance(expression, exp.Predicate)


# -- coarser groups -----------------------------------------------------------------------------------------------------------


def rolled_up(wanted: Groups, offered: Groups, below: Sequence[exp.Expr], source: Input, schema: Schema) -> Select:
    """Return the wanted groups as an aggregate over the offered groups' output ``source``.

    Raises :class:`NotProvable` if windows are no parts of the wanted ones, keys are missing, or an aggregate does not divide.
    """
    if offered.select.conditions:
        raise NotProvable
    return _RollUp(wanted, offered, source, {field.name: field.type for field in schema}).relation(below)


class _RollUp:
    def __init__(self, wanted: Groups, offered: Groups, source: Input, types: Mapping[str, str]) -> None:
        self._wanted, self._offered, self._source, self._types = wanted, offered, source, types
        self._column_of = {
            output.expression.name: output.name for output in offered.select.outputs if isinstance(output.expression, exp.Column)
        }
        """Maps the offered aggregate's columns to those of its output."""
        self._keys = self._offered_texts(offered.keys)
        self._aggregates = self._offered_texts(offered.aggregates)
        self._taken = {name.lower() for name in (*source.names, *wanted.aggregate.names)}

    def _offered_texts(self, expressions: Mapping[str, exp.Expr]) -> dict[str, str]:
        return by_text((self._column_of[name], of) for name, of in expressions.items() if name in self._column_of)

    def relation(self, below: Sequence[exp.Expr]) -> Select:
        wanted = self._wanted.aggregate
        exact = {text: name for text, name in self._keys.items() if self._types[name] not in _FRACTIONS}
        conditions = tuple(computed(condition, exact) for condition in below)
        parts, put = self._parts()
        window, inner = self._window()
        keys: list[Output] = []
        for name, expression in self._wanted.keys.items():
            whole = self._keys.get(canonical_expression(expression))
            made = column(whole) if whole is not None else computed(expression, exact)
            fresh = self._fresh("key")
            inner.append(Output(fresh, made))
            keys.append(Output(name, column(fresh)))
        child = Select(self._source, (*inner, *parts.partial), conditions)
        groups = Aggregate(child, window, tuple(keys), tuple(parts.final))
        if window is not None and self._ends_later(window):
            put |= {end: exp.Sub(this=column(end), expression=sql_interval(_AFTER_END_MS)) for end in (window.start, window.end)}
        put = {name: column(name) for name in wanted.names} | put
        select = self._wanted.select
        return Select(
            groups,
            tuple(Output(output.name, replaced(output.expression, put)) for output in select.outputs),
            tuple(replaced(condition, put) for condition in select.conditions),
        )

    def _window(self) -> tuple[Window | None, list[Output]]:
        """Return the wanted window over the times of the offered windows, and the column of these times.

        The ends of the offered windows are taken if possible, since they do not lag. A window of ends is a millisecond later than
        the window of rows: it holds its own end, and not its start.
        """
        coarse, fine = self._wanted.aggregate.window, self._offered.aggregate.window
        if coarse is None and fine is None:
            return None, []
        if coarse is None or fine is None or coarse.kind != "window" or fine.kind != "window":
            raise NotProvable
        divides = fine.slide_ms == fine.size_ms and coarse.size_ms % fine.size_ms == coarse.slide_ms % fine.size_ms == 0
        if not divides or (coarse.offset_ms - fine.offset_ms) % fine.size_ms:
            raise NotProvable
        time, later_ms = (fine.end, _AFTER_END_MS) if fine.end in self._column_of else (fine.start, 0)
        if time not in self._column_of:
            raise NotProvable
        fresh = self._fresh("time")
        window = replace(coarse, time=fresh, offset_ms=(coarse.offset_ms + later_ms) % coarse.slide_ms)
        return window, [Output(fresh, column(self._column_of[time]))]

    def _ends_later(self, window: Window) -> bool:
        coarse = self._wanted.aggregate.window
        return coarse is not None and window.offset_ms != coarse.offset_ms % coarse.slide_ms

    def _parts(self) -> tuple[DecomposedAggregates, dict[str, exp.Expr]]:
        """Return partial aggregates that are offered, final ones over them, and the wanted aggregates made of those."""
        types = {
            name: self._wanted.rows.types.get(argument.name, "")
            for name, expression in self._wanted.aggregates.items()
            for argument in expression.expressions[:1]
            if isinstance(argument, exp.Column)
        }
        parts = DecomposedAggregates(types, self._taken, exact_overflow=False)
        for name, expression in self._wanted.aggregates.items():
            if not parts.take(Output(name, expression)):
                raise NotProvable
        if not parts.exact:
            raise NotProvable
        put = dict(parts.of_final)
        for at, partial in enumerate(parts.partial):
            held = self._held(partial.expression)
            parts.partial[at] = Output(partial.name, held)
            whole = canonical_expression(partial.expression)
            type_ = self._types.get(self._aggregates.get(whole, ""), "")
            if call_name(partial.expression) in ("sum", "try_sum") and type_.startswith("decimal") and partial.name in put:
                put[partial.name] = exp.Cast(this=column(partial.name), to=exp.DataType.build(type_, dialect="spark"))
        self._taken |= {output.name.lower() for output in parts.partial}
        return parts, put

    def _held(self, partial: exp.Expr) -> exp.Expr:
        """Return the offered column of a partial aggregate. A sum of numbers gives their sum as fractions, too."""
        name = self._aggregates.get(canonical_expression(partial))
        if name is not None:
            return column(name)
        argument = partial.expressions[0] if partial.expressions else None
        if call_name(partial) == "sum" and isinstance(argument, exp.Cast) and isinstance(argument.this, exp.Column):
            type_ = self._wanted.rows.types.get(argument.this.name)
            of_numbers = canonical_expression(exp.Anonymous(this="sum", expressions=[argument.this.copy()]))
            name = self._aggregates.get(of_numbers)
            if name is None or argument.to.this != exp.DType.DOUBLE:
                raise NotProvable
            if type_ in _FRACTIONS:
                return column(name)
            if type_ in ("tinyint", "smallint", "int"):
                return exp.Cast(this=column(name), to=exp.DataType.build("double", dialect="spark"))
        raise NotProvable

    def _fresh(self, stem: str) -> str:
        name = next(candidate for n in range(len(self._taken) + 1) if (candidate := f"{stem}_{n}") not in self._taken)
        self._taken.add(name)
        return name
