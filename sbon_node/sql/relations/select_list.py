"""A SELECT's list of outputs, its groups, and their names, over FROM and WHERE."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sbon_node.model.schema import MAX_COLUMNS, NAME_HINT, is_column_name
from sbon_node.sql.checks.allowlist import check_scalar
from sbon_node.sql.relations.grouping import Grouping, is_grouped, ungrouped, with_names
from sbon_node.sql.relations.logical import Output, Relation, Select, conjuncts
from sbon_node.sql.relations.scope import Scope
from sbon_node.sql.syntax.dialect import call_name, error_at, render, start_of
from sbon_node.sql.syntax.lexical import refusal
from sbon_node.sql.syntax.window_columns import cut_of, end_of, is_end, window_column_of


def selected(clean: str, tree: exp.Select, scope: Scope) -> Select:
    """Return the relation of a SELECT over ``scope``, which holds its FROM and WHERE.

    Raises :class:`SbonError` with the place.
    """
    return _SelectList(clean, tree, scope).relation()


@dataclass(frozen=True, slots=True)
class _SelectList:
    clean: str
    tree: exp.Select
    scope: Scope

    def relation(self) -> Select:
        if is_grouped(self.tree):
            return self._grouped()
        outputs = []
        for expression in self._expanded():
            check_scalar(self.clean, expression.unalias())
            outputs.append((expression, self.scope.resolve(expression.unalias())))
        return self._outputs(self.scope.relation, outputs)

    def _expanded(self) -> list[exp.Expr]:
        """Return the SELECT list with stars and windows replaced by their columns."""
        if not self.tree.expressions:
            hint = "write SELECT expressions FROM stream"
            raise refusal("bad-sql", "nothing is selected", self.clean, 0, offending=self.clean, hint=hint)
        expressions: list[exp.Expr] = []
        for expression in self.tree.expressions:
            for node in expression.find_all(
                exp.Window, exp.Query, exp.WithinGroup, exp.Filter, exp.IgnoreNulls, exp.RespectNulls
            ):
                check_scalar(self.clean, node)
            if isinstance(expression, exp.Star) and any(expression.args.values()):
                raise error_at("unsupported-expression", "* with conditions", self.clean, expression, hint="name the columns")
            star = isinstance(expression, exp.Star) or (
                isinstance(expression, exp.Column) and isinstance(expression.this, exp.Star)
            )
            window = window_column_of(expression.unalias())
            if star:
                expressions += self.scope.columns_of(expression)
            elif window and (is_grouped(self.tree) or self.scope.find(end_of(window, "end"))):
                prefix = expression.alias or window
                expressions += [exp.alias_(end_of(window, end), f"{prefix}_{end}") for end in ("start", "end")]
            else:
                expressions.append(expression)
        if len(expressions) > MAX_COLUMNS:
            message = f"{len(expressions)} columns, {MAX_COLUMNS} are allowed"
            raise refusal("query-too-long", message, self.clean, 0, hint="name the columns needed")
        return expressions

    def _grouped(self) -> Select:
        expanded = self._expanded()
        group = self.tree.args.get("group")
        if group is not None and (unknown := [name for name, value in group.args.items() if value and name != "expressions"]):
            raise error_at(
                "unsupported-group-by", f"{unknown[0].upper()} is not supported", self.clean, group, hint="list the keys"
            )
        if self.tree.args.get("distinct") and group is not None:
            hint = "the groups differ already; leave DISTINCT out"
            raise error_at("unsupported-distinct", "DISTINCT over groups", self.clean, self.tree, hint=hint)
        by = self._keys(expanded)
        grouping = Grouping.by(self.scope, by)
        if not by:
            raise ungrouped(self.scope, expanded[0])
        outputs = [(expression, grouping.lift(expression.unalias())) for expression in expanded]
        having = self.tree.args.get("having")
        holding = with_names(having.this, _named_outputs(expanded)) if having is not None else None
        conditions = tuple(grouping.lift(conjunct) for conjunct in conjuncts(holding))
        return self._outputs(grouping.relation(start_of(group or self.tree), _words(self.tree)), outputs, conditions)

    def _keys(self, expanded: Sequence[exp.Expr]) -> list[exp.Expr]:
        """Return the grouping keys. The name of an output refers to its expression; DISTINCT groups by all outputs."""
        if self.tree.args.get("distinct"):
            cuts = [
                cut for expression in self.tree.expressions for node in expression.walk() if (cut := cut_of(node)) is not None
            ]
            bare = [one.unalias() for one in expanded]
            return [*cuts[:1], *(one for one in bare if not is_end(one) and not isinstance(one, exp.Literal))] if cuts else bare
        group = self.tree.args.get("group")
        by_alias = _named_outputs(expanded)
        keys: list[exp.Expr] = []
        for key in group.expressions if group is not None else ():
            one = self._at_position(key) if isinstance(key, exp.Literal) and not key.is_string else key
            is_alias = isinstance(one, exp.Column) and not one.table and self.scope.find(one) is None
            key_expression = by_alias.get(one.name.lower(), one) if is_alias else one
            window = window_column_of(key_expression) if isinstance(key_expression, exp.Column) else ""
            keys += [end_of(window, end) for end in ("start", "end")] if window else [key_expression]
        return keys

    def _at_position(self, number: exp.Literal) -> exp.Expr:
        """Resolve a number: ``GROUP BY 2`` refers to the second expression of the SELECT list."""
        selected = self.tree.expressions
        starred = any(
            isinstance(expression, exp.Star) or isinstance(expression.this, exp.Star)
            for expression in selected
            if not call_name(expression)
        )
        if starred or not number.name.isdigit() or not 1 <= int(number.name) <= len(selected):
            hint = f"there are 1 to {len(selected)}, or name the column"
            raise error_at("unsupported-group-by", "no position in the SELECT list", self.clean, number, hint=hint)
        expression: exp.Expr = selected[int(number.name) - 1].unalias()
        return expression

    def _outputs(
        self, relation: Relation, outputs: Sequence[tuple[exp.Expr, exp.Expr]], conditions: tuple[exp.Expr, ...] = ()
    ) -> Select:
        """Name every output: by its alias, its column, or the words of its text."""
        named_outputs: list[Output] = []
        used: set[str] = set()
        for written, resolved in outputs:
            plain = isinstance(written, exp.Alias | exp.Column)
            name = written.alias_or_name if plain else _made_name(written, used)
            if isinstance(written, exp.Column) and isinstance(resolved, exp.Column) and resolved.name.lower() == name.lower():
                name = resolved.name
            if not is_column_name(name):
                raise error_at("bad-name", f"{name!r} is not a column's name", self.clean, written, hint=NAME_HINT)
            if name.lower() in used:
                hint = "name one of them with AS"
                raise error_at("duplicate-column", f"two outputs are named {name!r}", self.clean, written, hint=hint)
            used.add(name.lower())
            named_outputs.append(Output(name, resolved))
        return Select(relation, tuple(named_outputs), conditions)


def _named_outputs(expanded: Sequence[exp.Expr]) -> dict[str, exp.Expr]:
    return {expression.alias.lower(): expression.unalias() for expression in expanded if isinstance(expression, exp.Alias)}


def _words(tree: exp.Select) -> str:
    return "SELECT DISTINCT" if tree.args.get("distinct") else "GROUP BY"


def _made_name(expression: exp.Expr, used: set[str]) -> str:
    """Return a name for an unnamed output, made from the words of its text."""
    words = re.findall(r"[a-z0-9]+", render(expression).lower())
    name = "_".join(words)[:40].rstrip("_") or "column"
    name = name if name[0].isalpha() else f"c_{name}"
    return next(
        candidate for candidate in (name, *(f"{name}_{number}" for number in range(2, len(used) + 3))) if candidate not in used
    )
