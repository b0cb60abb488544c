"""The visible names inside a SELECT and their meanings."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from sbon_node.planning.sql.checks.functions import WINDOW_COLUMNS
from sbon_node.planning.sql.relations.hints import bound_between, equality_between, window_over
from sbon_node.planning.sql.relations.logical import LEFT, RIGHT, Join, JoinKind, Relation, column
from sbon_node.planning.sql.syntax.dialect import error_at
from sbon_protocol.errors import SbonError


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
                free = _free(name, alias, used)
                used.add(free.lower())
                renamed[key] = free
                columns.append((free, RIGHT, name))
            offered[alias] = renamed
        remedies = (equality_between(self, other), bound_between(self, other))
        return Scope(self.clean, Join(kind, self.relation, other.relation, (), tuple(columns), start, remedies), offered)

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
            raise error_at(
                "ambiguous-column", f"{reference.name!r} is in more than one relation", self.clean, reference, hint=hint
            )
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
        near = difflib.get_close_matches(reference.name.lower(), sorted(names), n=3, cutoff=0.6)
        shown = ", ".join(names[:12]) + (" ..." if len(names) > 12 else "")
        owner = alias or " and ".join(self.offered)
        hint = f"did you mean {' or '.join(near)}?" if near else f"{owner} has {shown}"
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


def _free(name: str, alias: str, used: set[str]) -> str:
    candidates = [name, f"{alias}_{name}", *(f"{alias}_{name}_{number}" for number in range(2, len(used) + 3))]
    return next(candidate for candidate in candidates if candidate.lower() not in used)
