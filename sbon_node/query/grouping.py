"""GROUP BY, HAVING and DISTINCT: which of a SELECT's expressions are windows, keys and aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sbon_node.errors import SbonError
from sbon_node.query.allowlist import check_scalar
from sbon_node.query.canonical import canonical_expression
from sbon_node.query.dialect import call_name, error_at, render
from sbon_node.query.durations import literal_ms
from sbon_node.query.functions import AGGREGATES, ALLOWED_AGGREGATES, PIECES, refusal_of
from sbon_node.query.logical import Aggregate, Output, Relation, Select, Window, WindowKind, column
from sbon_node.query.scope import Scope

_WINDOW_HINT = "GROUP BY window(event time, '1 hour'), with an optional slide and start"


def is_grouped(select: exp.Select) -> bool:
    """Whether a SELECT makes one row of many."""
    roots = [*select.expressions, select.args.get("having"), select.args.get("distinct"), select.args.get("group")]
    if any(roots[len(select.expressions) :]):
        return True
    return any(call_name(call) in AGGREGATES for root in select.expressions for call in root.find_all(exp.Anonymous))


@dataclass(slots=True)
class Grouping:
    """Built from the GROUP BY list; then :meth:`lift` turns each expression of the SELECT into one over the groups."""

    scope: Scope
    window: Window | None
    keys: list[Output]
    aggregates: list[Output]
    prepared: list[Output]

    @staticmethod
    def by(scope: Scope, expressions: Sequence[exp.Expr]) -> Grouping:
        grouping = Grouping(scope, None, [], [], [])
        for one in expressions:
            if call_name(one) in PIECES:
                grouping._take_window(one)
            else:
                grouping._take_key(one)
        return grouping

    def relation(self, start: int) -> Aggregate:
        """The groups of all of FROM; ``start`` is their place in the text."""
        child: Relation = self.scope.relation
        if self.prepared:
            passed = tuple(Output(name, column(name)) for name in child.names)
            child = Select(child, (*passed, *self.prepared))
        return Aggregate(child, self.window, tuple(self.keys), tuple(self.aggregates), start)

    def lift(self, expression: exp.Expr) -> exp.Expr:
        """The expression over the columns of :meth:`relation`; raises ``not-grouped``."""
        self._check_shape(expression)
        return self._lifted(expression)

    def _lifted(self, node: exp.Expr) -> exp.Expr:
        if (end := self._window_end(node)) is not None:
            return end
        name = call_name(node)
        if name in AGGREGATES:
            return column(self._aggregate(node, name))
        if (key := self._key(node)) is not None:
            return column(key)
        if isinstance(node, exp.Column):
            hint = f"add it to GROUP BY, or take max({node.name})"
            raise error_at("not-grouped", f"{node.name} is neither grouped by nor aggregated", self.scope.clean, node, hint=hint)
        copy = node.copy()
        for child in list(copy.iter_expressions()):
            child.replace(self._lifted(child))
        return copy

    def _take_window(self, call: exp.Expr) -> None:
        clean, name = self.scope.clean, call_name(call)
        if self.window is not None:
            raise error_at("unsupported-window", "one window is enough", clean, call, hint="remove one of them")
        arguments = call.expressions
        lengths = [literal_ms(one) for one in arguments[1:]]
        most = 3 if name == "window" else 1
        if not arguments or not 1 <= len(lengths) <= most or None in lengths:
            hint = _WINDOW_HINT if name == "window" else "GROUP BY session_window(event time, '5 minutes')"
            raise error_at("bad-window", "lengths of time are missing, or not of a fixed length", clean, call, hint=hint)
        given = [one for one in lengths if one is not None]
        size, slide, offset = given[0], [*given, given[0]][1], [*given, 0][2] if len(given) > 2 else 0
        if size < 1 or not 1 <= slide <= size or not 0 <= offset < slide:
            hint = "0 < slide <= length, 0 <= start < slide"
            raise error_at("bad-window", "these lengths make no window", clean, call, hint=hint)
        if size // slide > 100:
            raise error_at("bad-window", "more than 100 windows hold each row", clean, call, hint="slide in longer steps")
        check_scalar(clean, arguments[0])
        time = self._prepare(self.scope.resolve(arguments[0]), "event_time")
        kind: WindowKind = "window" if name == "window" else "session_window"
        start_name, end_name = self._fresh(f"{kind}_start"), self._fresh(f"{kind}_end")
        self.window = Window(kind, time, size, slide, offset, start_name, end_name)

    def _take_key(self, one: exp.Expr) -> None:
        clean = self.scope.clean
        if isinstance(one, exp.Literal):
            raise error_at("unsupported-group-by", "a position", clean, one, hint="name the column")
        check_scalar(clean, one)
        resolved = self.scope.resolve(one)
        if self._key_of(resolved) is None:
            name = resolved.name if isinstance(resolved, exp.Column) else self._fresh("key")
            self.keys.append(Output(name, resolved))

    def _prepare(self, resolved: exp.Expr, name: str) -> str:
        """The name of a column of the child that holds ``resolved``; one is added where there is none."""
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
            raise error_at("bad-sql", f"{name} takes {fewest} to {most} arguments", clean, call, hint="see Spark's functions")
        for argument in arguments:
            if isinstance(argument, exp.Distinct):
                hint = "approx_count_distinct, or count the rows of a sub-query with DISTINCT"
                raise error_at("unsupported-aggregate", "DISTINCT inside an aggregate", clean, call, hint=hint)
            if not (name == "count" and isinstance(argument, exp.Star)):
                check_scalar(clean, argument)
        resolved = exp.Anonymous(this=name, expressions=[self.scope.resolve(one) for one in arguments])
        text = canonical_expression(resolved)
        for known in self.aggregates:
            if canonical_expression(known.expression) == text:
                return known.name
        fresh = self._fresh(name)
        self.aggregates.append(Output(fresh, resolved))
        return fresh

    def _window_end(self, node: exp.Expr) -> exp.Expr | None:
        """``window.start`` and ``window.end`` of this grouping's window."""
        if self.window is None or not isinstance(node, exp.Column) or node.args.get("db"):
            return None
        ends = {"start": self.window.start, "end": self.window.end} if node.table.lower() == self.window.kind else {}
        name = ends.get(node.name.lower())
        return column(name) if name is not None else None

    def _key(self, node: exp.Expr) -> str | None:
        if any(call_name(call) in AGGREGATES for call in node.find_all(exp.Anonymous)) or isinstance(node, exp.Literal):
            return None
        if any(self.scope.find(one) is None for one in node.find_all(exp.Column)):
            return None
        return self._key_of(self.scope.resolve(node))

    def _key_of(self, resolved: exp.Expr) -> str | None:
        text = canonical_expression(resolved)
        return next((key.name for key in self.keys if canonical_expression(key.expression) == text), None)

    def _check_shape(self, expression: exp.Expr) -> None:
        """Allowed parts only, with aggregates standing for values."""
        plain = expression.copy().transform(lambda n: exp.Null() if self._is_of_the_group(n) else n)
        check_scalar(self.scope.clean, plain)

    def _is_of_the_group(self, node: exp.Expr) -> bool:
        return call_name(node) in AGGREGATES or self._window_end(node) is not None

    def _fresh(self, name: str) -> str:
        taken = {one.lower() for one in self.scope.relation.names}
        taken |= {output.name.lower() for output in (*self.keys, *self.aggregates, *self.prepared)}
        candidates = [name, *(f"{name}_{number}" for number in range(2, len(taken) + 3))]
        return next(one for one in candidates if one.lower() not in taken)


def ungrouped(clean: str, expression: exp.Expr) -> SbonError:
    """Aggregates without groups would be one row at the end of time."""
    hint = "GROUP BY window(event time, '1 hour')"
    return error_at("aggregate-without-window", f"a stream has no end: {render(expression)}", clean, expression, hint=hint)
