"""GROUP BY, HAVING and DISTINCT: classify a SELECT's expressions as windows, keys and aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sbon_node.planning.sql.checks.allowlist import check_scalar
from sbon_node.planning.sql.checks.functions import AGGREGATES, ALLOWED_AGGREGATES, WINDOW_COLUMNS, refusal_of
from sbon_node.planning.sql.relations.logical import Aggregate, Output, Relation, Select, Window, WindowKind, as_they_are, column
from sbon_node.planning.sql.relations.scope import Scope, free_name, window_over
from sbon_node.planning.sql.rewrite.canonical import canonical_expression
from sbon_node.planning.sql.syntax.dialect import call_name, error_at, render
from sbon_node.planning.sql.syntax.durations import MAX_MS, literal_ms
from sbon_protocol.errors import SbonError


def is_grouped(select: exp.Select) -> bool:
    """Return whether a SELECT makes one row of many."""
    roots = [*select.expressions, select.args.get("having"), select.args.get("distinct"), select.args.get("group")]
    if any(roots[len(select.expressions) :]):
        return True
    return any(call_name(call) in AGGREGATES for root in select.expressions for call in root.find_all(exp.Anonymous))


@dataclass(slots=True)
class Grouping:
    """Grouping built from the GROUP BY list.

    :meth:`lift` then turns each expression of the SELECT into an expression over the groups.
    """

    scope: Scope
    window: Window | None
    keys: list[Output]
    aggregates: list[Output]
    prepared: list[Output]

    @staticmethod
    def by(scope: Scope, expressions: Sequence[exp.Expr]) -> Grouping:
        grouping = Grouping(scope, None, [], [], [])
        for expression in expressions:
            if call_name(expression) in WINDOW_COLUMNS:
                grouping._take_window(expression)
            else:
                grouping._take_key(expression)
        return grouping

    def relation(self, start: int, by: str = "GROUP BY") -> Aggregate:
        """Return the groups of all of FROM. ``start`` is their place in the text, ``by`` the words that introduced them."""
        child: Relation = self.scope.relation
        if self.prepared:
            child = Select(child, (*as_they_are(child.names), *self.prepared))
        remedy = window_over(self.scope, by=by, keys=[render(key.expression) for key in self.keys])
        return Aggregate(child, self.window, tuple(self.keys), tuple(self.aggregates), start, remedy=remedy)

    def lift(self, expression: exp.Expr) -> exp.Expr:
        """Return the expression over the columns of :meth:`relation`. Raises ``not-grouped``."""

        def plain(node: exp.Expr) -> exp.Expr:
            of_the_group = call_name(node) in AGGREGATES or self._window_end(node) is not None
            return exp.Null() if of_the_group else node

        check_scalar(self.scope.clean, expression.transform(plain))
        return self._lifted(expression)

    def _lifted(self, node: exp.Expr) -> exp.Expr:
        if (end := self._window_end(node)) is not None:
            return end
        name = call_name(node)
        if name in AGGREGATES:
            return column(self._aggregate(node, name))
        if (key := self._key(node)) is not None:
            return column(key)
        if isinstance(node, exp.Column) and node.table.lower() in WINDOW_COLUMNS and node.table.lower() not in self.scope.offered:
            raise self._no_end(node)
        if isinstance(node, exp.Column):
            hint = f"add it to GROUP BY, or take max({node.name})"
            raise error_at("not-grouped", f"{node.name} is neither grouped by nor aggregated", self.scope.clean, node, hint=hint)
        copy = node.copy()
        for child in list(copy.iter_expressions()):
            child.replace(self._lifted(child))
        return copy

    def _no_end(self, node: exp.Column) -> SbonError:
        if self.window is None:
            return error_at("not-grouped", "there is no window here", self.scope.clean, node, hint=window_over(self.scope))
        hint = f"write {self.window.kind}.start or {self.window.kind}.end"
        return error_at("not-grouped", "the window has no such part", self.scope.clean, node, hint=hint)

    def _take_window(self, call: exp.Expr) -> None:
        clean, name = self.scope.clean, call_name(call)
        if self.window is not None:
            hint = "remove one of them; a window over the windows of a sub-query is window(window_time(window), '1 day')"
            raise error_at("unsupported-window", "a second window", clean, call, hint=hint)
        arguments = call.expressions
        size, slide, offset = lengths_of_window(clean, call)
        check_scalar(clean, arguments[0])
        time = self._prepare(self.scope.resolve(arguments[0]), "event_time")
        kind: WindowKind = "window" if name == "window" else "session_window"
        start_name, end_name = self._fresh(f"{kind}_start"), self._fresh(f"{kind}_end")
        self.window = Window(kind, time, size, slide, offset, start_name, end_name)

    def _take_key(self, expression: exp.Expr) -> None:
        clean = self.scope.clean
        if isinstance(expression, exp.Literal):
            raise error_at("unsupported-group-by", "a position", clean, expression, hint="name the column")
        check_scalar(clean, expression)
        resolved = self.scope.resolve(expression)
        if self._key_of(resolved) is None:
            name = resolved.name if isinstance(resolved, exp.Column) else self._fresh("key")
            self.keys.append(Output(name, resolved))

    def _prepare(self, resolved: exp.Expr, name: str) -> str:
        """Return the child's column that holds ``resolved``; add the column if it is missing."""
        if isinstance(resolved, exp.Column):
            return resolved.name
        fresh = self._fresh(name)
        self.prepared.append(Output(fresh, resolved))
        return fresh

    def _aggregate(self, call: exp.Expr, name: str) -> str:
        clean = self.scope.clean
        if name not in ALLOWED_AGGREGATES:
            code, message, hint = refusal_of(name)
            raise error_at(code, message, clean, call, hint=hint)
        fewest, most = ALLOWED_AGGREGATES[name]
        arguments = call.expressions
        if not fewest <= len(arguments) <= most:
            counted = "1 argument" if most == 1 else f"{most} arguments"
            hint = f"write {name}({'column' if most == 1 else 'one, other'})"
            raise error_at("bad-sql", f"{name} takes {counted}, not {len(arguments)}", clean, call, hint=hint)
        for argument in arguments:
            if isinstance(argument, exp.Distinct):
                hint = "approx_count_distinct(column), or aggregate over SELECT DISTINCT window(event time, '1 hour'), column"
                raise error_at("unsupported-aggregate", "DISTINCT inside an aggregate keeps all values", clean, call, hint=hint)
            if not (name == "count" and isinstance(argument, exp.Star)):
                check_scalar(clean, argument)
        resolved = exp.Anonymous(this=name, expressions=[self.scope.resolve(argument) for argument in arguments])
        text = canonical_expression(resolved)
        for known in self.aggregates:
            if canonical_expression(known.expression) == text:
                return known.name
        fresh = self._fresh(name)
        self.aggregates.append(Output(fresh, resolved))
        return fresh

    def _window_end(self, node: exp.Expr) -> exp.Expr | None:
        """Return ``window.start`` or ``window.end`` of this grouping's window."""
        if self.window is None or not isinstance(node, exp.Column) or node.args.get("db"):
            return None
        ends = {"start": self.window.start, "end": self.window.end} if node.table.lower() == self.window.kind else {}
        name = ends.get(node.name.lower())
        return column(name) if name is not None else None

    def _key(self, node: exp.Expr) -> str | None:
        if any(call_name(call) in AGGREGATES for call in node.find_all(exp.Anonymous)) or isinstance(node, exp.Literal):
            return None
        if any(self.scope.find(reference) is None for reference in node.find_all(exp.Column)):
            return None
        return self._key_of(self.scope.resolve(node))

    def _key_of(self, resolved: exp.Expr) -> str | None:
        text = canonical_expression(resolved)
        return next((key.name for key in self.keys if canonical_expression(key.expression) == text), None)

    def _fresh(self, name: str) -> str:
        in_use = {name.lower() for name in self.scope.relation.names}
        in_use |= {output.name.lower() for output in (*self.keys, *self.aggregates, *self.prepared)}
        return free_name(name, in_use)


def with_names(condition: exp.Expr, outputs: Mapping[str, exp.Expr]) -> exp.Expr:
    """Replace output names in a HAVING condition by their expressions. Inside an aggregate a name is a column's."""

    def output_of(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or node.table or node.name.lower() not in outputs:
            return node
        inside = node.find_ancestor(exp.Anonymous)
        while inside is not None:
            if call_name(inside) in AGGREGATES:
                return node
            inside = inside.find_ancestor(exp.Anonymous)
        written = outputs[node.name.lower()].copy()
        return written if isinstance(written, exp.Column | exp.Anonymous) else exp.Paren(this=written)

    return condition.transform(output_of)


def filtered_aggregate(node: exp.Expr) -> exp.Expr:
    """Rewrite ``sum(x) FILTER (WHERE c)`` as ``sum(CASE WHEN c THEN x END)``. Aggregates of one argument skip NULLs."""
    if not isinstance(node, exp.Filter) or ALLOWED_AGGREGATES.get(call_name(node.this)) != (1, 1):
        return node
    (argument,) = node.this.expressions if len(node.this.expressions) == 1 else (None,)
    if argument is None or isinstance(argument, exp.Distinct):
        return node
    value = exp.Literal.number(1) if isinstance(argument, exp.Star) else argument.copy()
    case = exp.Case(ifs=[exp.If(this=node.expression.this.copy(), true=value)])
    return exp.Anonymous(this=node.this.this, expressions=[case])


def ungrouped(scope: Scope, expression: exp.Expr) -> SbonError:
    """Return the error for ungrouped aggregates, whose only row would never come."""
    message = "a stream has no end, so an aggregate needs a window"
    return error_at("aggregate-without-window", message, scope.clean, expression, hint=window_over(scope))


# -- Lengths of window(time, length, slide, start) and session_window(time, gap) ---------------------------------------

MOST_AT_ONCE = 100
"""Most windows per row; the row's state, and its rows downstream, multiply by this number."""

_DAY_MS = 86_400_000
_UNITS = "write a number of weeks, days, hours, minutes, seconds or milliseconds: '30 days'"


def lengths_of_window(clean: str, call: exp.Expr) -> tuple[int, int, int]:
    """Return length, slide and start. Raises ``bad-window`` with the wrong argument."""
    lengths = call.expressions[1:]
    name = call_name(call)
    if not lengths or len(lengths) > (3 if name == "window" else 1):
        takes = "a length, a slide and a start" if name == "window" else "one length, that of the gap"
        hint = f"write {name}(event time, '1 hour')"
        raise error_at("bad-window", f"{name} takes the event time and {takes}", clean, call, hint=hint)
    size = _length(clean, lengths[0])
    slide = _length(clean, lengths[1]) if len(lengths) > 1 else size
    start = _length(clean, lengths[2]) if len(lengths) > 2 else 0
    if size < 1:
        raise error_at("bad-window", "a window is longer than nothing", clean, lengths[0], hint="write '1 hour'")
    if slide < 1:
        raise error_at(
            "bad-window", "a slide is longer than nothing", clean, lengths[1], hint="write at most the window's length"
        )
    if slide > size:
        hint = "slide by at most the window's length"
        raise error_at("bad-window", "rows between the windows would be lost", clean, lengths[1], hint=hint)
    if not 0 <= start < slide:
        raise error_at("bad-window", "a start is from 0 on and less than the slide", clean, lengths[2], hint="leave it out")
    if -(-size // slide) > MOST_AT_ONCE:
        message = f"{-(-size // slide)} windows would hold each row, {MOST_AT_ONCE} may"
        raise error_at("bad-window", message, clean, lengths[1], hint=f"slide by '{_in_words(-(-size // MOST_AT_ONCE))}' or more")
    return size, slide, start


def _length(clean: str, node: exp.Expr) -> int:
    length = literal_ms(node)
    if length is None:
        raise _no_length(clean, node)
    return length


def _no_length(clean: str, node: exp.Expr) -> SbonError:
    written = f"{node.this.name if isinstance(node, exp.Interval) else node.name} {node.text('unit')}".lower()
    if "month" in written or "year" in written:
        return error_at("bad-window", "months and years differ in length", clean, node, hint=_UNITS)
    message = f"no length of time, or one of more than {MAX_MS // _DAY_MS} days"
    return error_at("bad-window", message, clean, node, hint=_UNITS)


def _in_words(ms: int) -> str:
    return f"{-(-ms // 1000)} seconds" if ms >= 1000 else f"{ms} milliseconds"
