"""The visible names inside a SELECT and their meanings, and hints that are written with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sbon_node.planning.sql.checks.functions import WINDOW_COLUMNS
from sbon_node.planning.sql.relations.logical import (
    LEFT,
    RIGHT,
    Aggregate,
    Join,
    JoinKind,
    Relation,
    Scan,
    Select,
    as_they_are,
    children_of,
    column,
)
from sbon_node.planning.sql.rewrite.event_time import lags_ms
from sbon_node.planning.sql.syntax.dialect import call_name, error_at
from sbon_protocol.errors import SbonError, did_you_mean


@dataclass(frozen=True, slots=True)
class Scope:
    """``relation`` is all of FROM joined; ``offered`` maps alias and lower-case name to its columns."""

    clean: str
    relation: Relation
    offered: Mapping[str, Mapping[str, str]]

    @staticmethod
    def of(clean: str, alias: str, relation: Relation) -> Scope:
        return Scope(clean, relation, {alias.lower(): {name.lower(): name for name in relation.names}})

    def joined(self, other: Scope, kind: JoinKind, start: int = 0) -> Scope:
        """Join both sides without a condition. A right name that the left side has too gets its alias as a prefix."""
        used = {name.lower() for name in self.relation.names}
        columns = [(name, LEFT, name) for name in self.relation.names]
        offered = dict(self.offered)
        for alias, names in other.offered.items():
            renamed = {}
            for key, name in names.items():
                free = name if name.lower() not in used else free_name(f"{alias}_{name}", used)
                used.add(free.lower())
                renamed[key] = free
                columns.append((free, RIGHT, name))
            offered[alias] = renamed
        remedies = (equality_between(self, other), bound_between(self, other))
        return Scope(self.clean, Join(kind, self.relation, other.relation, (), tuple(columns), start, remedies), offered)

    def filtered(self, conditions: Sequence[exp.Expr]) -> Scope:
        """Return the scope of the rows that satisfy all ``conditions``, which are over columns of ``relation``."""
        return replace(self, relation=Select(self.relation, as_they_are(self.relation.names), tuple(conditions)))

    def resolve(self, expression: exp.Expr) -> exp.Expr:
        """Return a copy with every column as a bare name of ``relation``. Raises ``unknown-column`` and similar errors."""
        return expression.transform(lambda node: self._meant(node) if isinstance(node, exp.Column) else node)

    def find(self, reference: exp.Column) -> str | None:
        """Return the column's name in ``relation``, or None; raise ``ambiguous-column``.

        A grouped sub-query outputs its window as two columns, ``window_start`` and ``window_end``.
        """
        alias, name = reference.table.lower(), reference.name.lower()
        if alias in WINDOW_COLUMNS and alias not in self.offered:
            alias, name = reference.text("db").lower(), f"{alias}_{name}"
        elif reference.args.get("db"):
            return None
        matches = [names[name] for key, names in self.offered.items() if name in names and alias in ("", key)]
        if len(matches) > 1:
            hint = "write " + " or ".join(f"{key}.{reference.name}" for key, names in self.offered.items() if name in names)
            message = f"{reference.name!r} is in more than one relation"
            raise error_at("ambiguous-column", message, self.clean, reference, hint=hint)
        return matches[0] if matches else None

    def columns_of(self, star: exp.Expr) -> list[exp.Column]:
        """Return the columns that ``*`` or ``alias.*`` covers."""
        alias = star.table.lower() if isinstance(star, exp.Column) else ""
        if alias and alias not in self.offered:
            raise self._unknown_alias(star)
        pairs = [(key, name) for key, names in self.offered.items() if alias in ("", key) for name in names]
        names = [name for _, name in pairs]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise self._starred_twice(star, twice)
        if len(self.offered) == 1:
            return [column(self.offered[key][name]) for key, name in pairs]
        return [column(name, key) for key, name in pairs]

    def _starred_twice(self, star: exp.Expr, name: str) -> SbonError:
        """Return the error for a name that ``*`` covers twice. It also reports a join without any condition."""
        first, *others = [key for key, names in self.offered.items() if name in names]
        hint = f"name the columns, such as {first}.{name}, " + ", ".join(f"{key}.{name} AS {key}_{name}" for key in others)
        if isinstance(self.relation, Join) and not self.relation.conditions:
            hint += "; and the join needs an equality and a bound in time: " + "; ".join(self.relation.remedies)
        return error_at("ambiguous-column", f"{name!r} is in more than one relation", self.clean, star, hint=hint)

    def _meant(self, reference: exp.Column) -> exp.Expr:
        name = self.find(reference)
        if name is None:
            raise self.unknown(reference)
        resolved = column(name)
        position = next((part.meta for part in reference.walk() if "start" in part.meta), {})
        resolved.this.meta.update(position)
        return resolved

    def unknown(self, reference: exp.Column) -> SbonError:
        alias = reference.table.lower()
        if alias in WINDOW_COLUMNS and alias not in self.offered:
            hint = window_over(self)
            return error_at("unknown-column", f"there is no {alias} here", self.clean, reference, hint=hint)
        if alias and alias not in self.offered:
            return self._unknown_alias(reference)
        names = [name for key, offered in self.offered.items() if alias in ("", key) for name in offered]
        shown = ", ".join(names[:12]) + (" ..." if len(names) > 12 else "")
        owner = alias or " and ".join(self.offered)
        hint = did_you_mean(reference.name, names, f"{owner} has {shown}")
        ends = [f"{reference.name.lower()}_{end}" for end in ("start", "end")]
        if set(ends) <= set(names):
            unnamed = " or ".join(WINDOW_COLUMNS)
            hint = f"a window with a name of its own is handed on as {' and '.join(ends)}, and one without as {unnamed}"
        return error_at("unknown-column", f"{owner} has no column {reference.name!r}", self.clean, reference, hint=hint)

    def _unknown_alias(self, reference: exp.Expr) -> SbonError:
        assert isinstance(reference, exp.Column)
        known = " or ".join(f"{alias}.{reference.name}" for alias in self.offered)
        if any((end := f"{reference.table}_{reference.name}".lower()) in names for names in self.offered.values()):
            known = end  # Of a window with a name of its own, handed on as two columns.
        message = f"no stream of this query is called {reference.table!r}"
        return error_at("unknown-alias", message, self.clean, reference, hint=f"write {known}")


def free_name(name: str, used: Collection[str]) -> str:
    """Return the name, with a number behind it if it is among the lower-case names ``used``."""
    candidates = (name, *(f"{name}_{number}" for number in range(2, len(used) + 3)))
    return next(candidate for candidate in candidates if candidate.lower() not in used)


# -- Hints for refused windows and joins, written with the names of the user's text ------------------------------------


def window_over(names: Scope, *, by: str = "GROUP BY", keys: Sequence[str] = ()) -> str:
    """Return a GROUP BY with a window, beside other ``keys``."""
    times = _times(names, qualified=len(names.offered) > 1)
    others = "".join(f", {key}" for key in keys)
    if not times:
        return f"{by} window(event time, '1 hour'){others}; {_lost(names.relation)}"
    ends = [time for time in times if time.endswith("window.end")]
    if ends:
        window = ends[0].removesuffix(".end")
        return f"{by} {window}{others}, or {by} window(window_time({window}), '1 day'){others}"
    return f"{by} window({times[0]}, '1 hour'){others}"


def bound_between(left: Scope, right: Scope) -> str:
    """Return a condition that bounds a join of the two in time."""
    if same := set(left.offered) & set(right.offered):
        return f"give {min(same)} another name in the sub-query, and bound its event time by the outer one"
    one, other = _times(left, qualified=True), _times(right, qualified=True)
    if one and other:
        condition = f"{other[0]} BETWEEN {one[-1]} - INTERVAL 1 HOUR AND {one[-1]}"
        return f"bound it: {condition}, or by a join window (--join-window, join_window_ms)"
    return "bound it by the event times of both sides; " + _lost((left if not one else right).relation)


def equality_between(left: Scope, right: Scope) -> str:
    """Return an equality condition for a join of the two."""
    if same := set(left.offered) & set(right.offered):
        return f"give {min(same)} another name in the sub-query, and compare a column of both"
    times = {*lags_ms(left.relation, bounded=False), *lags_ms(right.relation, bounded=False)}
    for alias, columns in left.offered.items():
        for other, others in right.offered.items():
            for name in columns:
                if name in others and columns[name] not in times:
                    return f"add one: {alias}.{name} = {other}.{name}"
    return f"add one: {next(iter(left.offered))}.key = {next(iter(right.offered))}.key"


def _times(names: Scope, *, qualified: bool) -> list[str]:
    """Return the columns that follow the watermark, in the user's spelling. The end of a window counts, its start does not."""
    lags = lags_ms(names.relation, bounded=False)
    times = []
    for alias, columns in names.offered.items():
        prefix = f"{alias}." if qualified else ""
        for key, name in columns.items():
            if name in lags and not key.endswith("window_start"):
                window = key.removesuffix("_end")
                times.append(f"{prefix}{window}.end" if window in ("window", "session_window") else f"{prefix}{key}")
    return times


def _lost(relation: Relation) -> str:
    """Return the column that a sub-query would have to output."""
    return f"the sub-query would have to select {' or '.join(sorted(_below(relation)))}"


def _below(relation: Relation) -> set[str]:
    if isinstance(relation, Scan):
        return {f"{relation.entry.declaration.event_time}, the event time of {relation.entry.declaration.name}"}
    if isinstance(relation, Aggregate) and relation.window is not None:
        return {relation.window.kind}
    return {name for child in children_of(relation) for name in _below(child)}


# -- Windows (whole, by their ends, or as a call), converted to columns for their ends ---------------------------------


def window_column_of(node: exp.Expr) -> str:
    """Return ``window`` or ``session_window`` if the whole window is selected."""
    name = call_name(node) or (node.name.lower() if isinstance(node, exp.Column) and not node.table else "")
    return name if name in WINDOW_COLUMNS else ""


def end_of(window: str, end: str, alias: object = None) -> exp.Column:
    """Return the column ``window.start`` or ``window.end``, of the relation ``alias`` if given."""
    return exp.Column(this=exp.Identifier(this=end), table=exp.Identifier(this=window), db=alias)


def by_ends(condition: exp.Expr | None, scope: Scope) -> exp.Expr | None:
    """Rewrite ``a.window = b.window`` as equalities of starts and of ends."""

    def ends(node: exp.Expr) -> exp.Expr:
        sides = (node.this, node.expression) if isinstance(node, exp.EQ) else ()
        names = {side.name.lower() for side in sides if isinstance(side, exp.Column) and scope.find(side) is None}
        if len(names) != 1 or not names <= set(WINDOW_COLUMNS) or not all(isinstance(side, exp.Column) for side in sides):
            return node
        window = names.pop()
        both = ([end_of(window, end, side.args.get("table")) for side in sides] for end in ("start", "end"))
        starts, stops = (exp.EQ(this=start, expression=other) for start, other in both)
        return exp.Paren(this=exp.And(this=starts, expression=stops))

    return condition.copy().transform(ends) if condition is not None else None


def is_end(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.table.lower() in WINDOW_COLUMNS and not node.args.get("db")


def cut_of(node: exp.Expr) -> exp.Expr | None:
    """Return the call of ``window`` that a part of the SELECT list is, or was."""
    return node if call_name(node) in WINDOW_COLUMNS else node.meta.get("cut")


def plain_window(node: exp.Expr) -> exp.Expr:
    """Rewrite ``window(ts, '1 hour').start`` as ``window.start``.

    ``window_time(w.window)`` becomes a microsecond before ``w.window.end``.
    """
    if isinstance(node, exp.Dot) and call_name(node.this) in WINDOW_COLUMNS and isinstance(node.expression, exp.Identifier):
        end = end_of(call_name(node.this), node.expression.name.lower())
        end.meta["cut"] = node.this
        return end
    window = node.expressions[0] if call_name(node) == "window_time" and len(node.expressions) == 1 else None
    if not isinstance(window, exp.Column) or window.name.lower() not in WINDOW_COLUMNS:
        return node
    end = end_of(window.name.lower(), "end", window.args.get("table"))
    return exp.Sub(this=end, expression=exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this="MICROSECOND")))
