"""What a SELECT makes of the rows of FROM and WHERE: its list of outputs, its groups, and their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from sbon_node.query.allowlist import check_scalar
from sbon_node.query.dialect import call_name, error_at, render, start_of
from sbon_node.query.grouping import Grouping, is_grouped, ungrouped, with_names
from sbon_node.query.lexical import refusal
from sbon_node.query.logical import Output, Relation, Select, conjuncts
from sbon_node.query.pieces import cut_of, end_of, is_end, piece_of
from sbon_node.query.schema import MAX_COLUMNS
from sbon_node.query.scope import Scope


def selected(clean: str, tree: exp.Select, scope: Scope) -> Select:
    """The relation of a SELECT over what its FROM and WHERE leave in ``scope``; raises :class:`SbonError` with the place."""
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
        for one in self._expanded():
            check_scalar(self.clean, one.unalias())
            outputs.append((one, self.scope.resolve(one.unalias())))
        return self._outputs(self.scope.relation, outputs)

    def _expanded(self) -> list[exp.Expr]:
        """The SELECT list with its stars and its windows as the columns they stand for."""
        if not self.tree.expressions:
            hint = "write SELECT expressions FROM stream"
            raise refusal("bad-sql", "nothing is selected", self.clean, 0, offending=self.clean, hint=hint)
        found: list[exp.Expr] = []
        for one in self.tree.expressions:
            for node in one.find_all(exp.Window, exp.Query, exp.WithinGroup, exp.Filter, exp.IgnoreNulls, exp.RespectNulls):
                check_scalar(self.clean, node)
            if isinstance(one, exp.Star) and any(one.args.values()):
                raise error_at("unsupported-expression", "* with conditions", self.clean, one, hint="name the columns")
            star = isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star))
            piece = piece_of(one.unalias())
            if star:
                found += self.scope.columns_of(one)
            elif piece and (is_grouped(self.tree) or self.scope.find(end_of(piece, "end"))):
                prefix = one.alias or piece
                found += [exp.alias_(end_of(piece, end), f"{prefix}_{end}") for end in ("start", "end")]
            else:
                found.append(one)
        if len(found) > MAX_COLUMNS:
            message = f"{len(found)} columns, {MAX_COLUMNS} are allowed"
            raise refusal("query-too-long", message, self.clean, 0, hint="name the columns needed")
        return found

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
        outputs = [(one, grouping.lift(one.unalias())) for one in expanded]
        having = self.tree.args.get("having")
        holding = with_names(having.this, _named_outputs(expanded)) if having is not None else None
        conditions = tuple(grouping.lift(one) for one in conjuncts(holding))
        return self._outputs(grouping.relation(start_of(group or self.tree), _words(self.tree)), outputs, conditions)

    def _keys(self, expanded: Sequence[exp.Expr]) -> list[exp.Expr]:
        """What is grouped by; a name of an output stands for what it is made of, and DISTINCT groups by all outputs."""
        if self.tree.args.get("distinct"):
            cuts = [cut for one in self.tree.expressions for node in one.walk() if (cut := cut_of(node)) is not None]
            bare = [one.unalias() for one in expanded]
            return [*cuts[:1], *(one for one in bare if not is_end(one) and not isinstance(one, exp.Literal))] if cuts else bare
        group = self.tree.args.get("group")
        made = _named_outputs(expanded)
        keys: list[exp.Expr] = []
        for key in group.expressions if group is not None else ():
            one = self._at_position(key) if isinstance(key, exp.Literal) and not key.is_string else key
            named = isinstance(one, exp.Column) and not one.table and self.scope.find(one) is None
            meant = made.get(one.name.lower(), one) if named else one
            whole = piece_of(meant) if isinstance(meant, exp.Column) else ""
            keys += [end_of(whole, end) for end in ("start", "end")] if whole else [meant]
        return keys

    def _at_position(self, number: exp.Literal) -> exp.Expr:
        """``GROUP BY 2`` is by the second of the SELECT list."""
        listed = self.tree.expressions
        starred = any(isinstance(one, exp.Star) or isinstance(one.this, exp.Star) for one in listed if not call_name(one))
        if starred or not number.name.isdigit() or not 1 <= int(number.name) <= len(listed):
            hint = f"there are 1 to {len(listed)}, or name the column"
            raise error_at("unsupported-group-by", "no position in the SELECT list", self.clean, number, hint=hint)
        meant: exp.Expr = listed[int(number.name) - 1].unalias()
        return meant

    def _outputs(
        self, relation: Relation, outputs: Sequence[tuple[exp.Expr, exp.Expr]], conditions: tuple[exp.Expr, ...] = ()
    ) -> Select:
        """Gives every output a plain name: its alias, its column's name, or one made of its text."""
        named_outputs: list[Output] = []
        seen: set[str] = set()
        for written, resolved in outputs:
            plain = isinstance(written, exp.Alias | exp.Column)
            name = written.alias_or_name if plain else _made_name(written, seen)
            if isinstance(written, exp.Column) and isinstance(resolved, exp.Column) and resolved.name.lower() == name.lower():
                name = resolved.name
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", name):
                hint = "letters, digits and _ only, at most 128"
                raise error_at("bad-name", f"{name!r} is not a column's name", self.clean, written, hint=hint)
            if name.lower() in seen:
                hint = "name one of them with AS"
                raise error_at("duplicate-column", f"two outputs are named {name!r}", self.clean, written, hint=hint)
            seen.add(name.lower())
            named_outputs.append(Output(name, resolved))
        return Select(relation, tuple(named_outputs), conditions)


def _named_outputs(expanded: Sequence[exp.Expr]) -> dict[str, exp.Expr]:
    return {one.alias.lower(): one.unalias() for one in expanded if isinstance(one, exp.Alias)}


def _words(tree: exp.Select) -> str:
    return "SELECT DISTINCT" if tree.args.get("distinct") else "GROUP BY"


def _made_name(expression: exp.Expr, taken: set[str]) -> str:
    """A name for an output without one, of the words of its text."""
    words = re.findall(r"[a-z0-9]+", render(expression).lower())
    name = "_".join(words)[:40].rstrip("_") or "column"
    name = name if name[0].isalpha() else f"c_{name}"
    return next(one for one in (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3))) if one not in taken)
