"""A user's SQL read into relations, its names resolved against the catalogue; all that is not supported is refused here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from sbon_node.errors import SbonError
from sbon_node.query.allowlist import check_scalar
from sbon_node.query.catalog import CatalogEntry
from sbon_node.query.dialect import begin_of, call_name, error_at, render, start_of
from sbon_node.query.functions import PIECES
from sbon_node.query.grouping import Grouping, filtered_aggregate, is_grouped, ungrouped, with_names
from sbon_node.query.lexical import Token, refusal, scan
from sbon_node.query.logical import (
    LEFT,
    RIGHT,
    Join,
    JoinKind,
    Output,
    Relation,
    Scan,
    Select,
    Union,
    column,
    conjuncts,
    in_place_of,
)
from sbon_node.query.schema import MAX_COLUMNS
from sbon_node.query.scope import Scope
from sbon_node.query.settings import QuerySettings
from sbon_node.query.shape import check_alias, check_clauses, check_relation, one_query

_KINDS: dict[tuple[str, str], JoinKind] = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner", ("LEFT", ""): "left", ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right", ("RIGHT", "OUTER"): "right", ("FULL", ""): "full", ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi", ("", "SEMI"): "semi",
}  # fmt: skip


def read_query(text: str, catalog: Mapping[str, CatalogEntry], settings: QuerySettings) -> Relation:
    """Parses, checks against the allow-list and resolves; raises :class:`SbonError` with line, column and hint."""
    clean, tokens = scan(text, strict=False, max_text=settings.max_text)
    tree = one_query(clean, tokens).transform(_plain_window).transform(filtered_aggregate)
    return _Reader(clean, tokens, catalog, settings).query(tree, {})


class _Reader:
    """Reads the SELECTs of one text, those inside of others first."""

    def __init__(self, clean: str, tokens: list[Token], catalog: Mapping[str, CatalogEntry], settings: QuerySettings) -> None:
        self._clean, self._tokens, self._settings = clean, tokens, settings
        self._streams = {name: entry for name, entry in catalog.items() if not entry.dropped}
        self._relations = 0

    def query(self, tree: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
        """A SELECT, or several with UNION ALL, after the common table expressions they begin with."""
        within, own = dict(ctes), set[str]()
        for cte in tree.args["with_"].expressions if tree.args.get("with_") else ():
            check_alias(self._clean, cte)
            if cte.alias.lower() in own:
                hint = "give one of them another name"
                raise error_at("duplicate-alias", "WITH names this twice", self._clean, cte.args["alias"], hint=hint)
            own.add(cte.alias.lower())
            within[cte.alias.lower()] = self.query(cte.this, within)
        if isinstance(tree, exp.Subquery):
            return self.query(tree.this, within)
        if isinstance(tree, exp.SetOperation):
            return self._union(tree, within)
        assert isinstance(tree, exp.Select)
        check_clauses(self._clean, tree, self._tokens)
        return self._select(tree, within)

    def _union(self, tree: exp.SetOperation, ctes: Mapping[str, Relation]) -> Relation:
        check_clauses(self._clean, tree, self._tokens)
        children: list[Relation] = []
        for side in (tree.this, tree.expression):
            relation = self.query(side, ctes)
            children += relation.children if isinstance(relation, Union) else (relation,)
        names = children[0].names
        for child, side in zip(children[1:], [tree.expression] * len(children), strict=False):
            if len(child.names) != len(names):
                message = f"{len(names)} columns before UNION, {len(child.names)} after it"
                raise error_at("bad-union", message, self._clean, side, hint="select as many columns in each part")
        return Union(tuple(child if child.names == names else _renamed(child, names) for child in children))

    def _select(self, tree: exp.Select, ctes: Mapping[str, Relation]) -> Relation:
        scope = self._from(tree, ctes)
        where = tree.args.get("where")
        if where is not None:
            scope = self._where(scope, where.this, ctes)
        if is_grouped(tree):
            return self._grouped(tree, scope)
        outputs = []
        for one in self._expanded(tree, scope):
            check_scalar(self._clean, one.unalias())
            outputs.append((one, scope.resolve(one.unalias())))
        return self._outputs(scope.relation, outputs)

    # -- FROM and WHERE -----------------------------------------------------------------------------------------------

    def _from(self, tree: exp.Select, ctes: Mapping[str, Relation]) -> Scope:
        source = tree.args.get("from_")
        if source is None:
            hint = "name the stream to read: FROM stream"
            raise refusal("unsupported-no-from", "there is no FROM", self._clean, 0, offending=self._clean, hint=hint)
        scope = self._relation(source.this, ctes)
        for join in tree.args.get("joins") or ():
            scope = self._join(scope, join, ctes)
        return scope

    def _relation(self, tree: exp.Expr, ctes: Mapping[str, Relation]) -> Scope:
        self._relations += 1
        if self._relations > self._settings.max_relations:
            hint = "split the query"
            raise error_at("query-too-long", f"more than {self._settings.max_relations} relations", self._clean, tree, hint=hint)
        check_relation(self._clean, tree)
        if isinstance(tree, exp.Subquery):
            return Scope.of(self._clean, tree.alias or f"subquery_{self._relations}", self.query(tree.this, ctes))
        known = ctes.get(tree.name.lower())
        return Scope.of(self._clean, tree.alias_or_name, known if known is not None else Scan(self._stream(tree, ctes)))

    def _join(self, left: Scope, tree: exp.Join, ctes: Mapping[str, Relation]) -> Scope:
        kind = _KINDS.get((tree.side.upper(), tree.kind.upper())) if not tree.method else None
        if kind is None:
            raise self._unsupported_join(tree)
        if tree.args.get("using"):
            names = [one.name for one in tree.args["using"]]
            first, second = next(iter(left.offered)), tree.this.alias_or_name
            hint = "write ON " + " AND ".join(f"{first}.{name} = {second}.{name}" for name in names)
            raise error_at("unsupported-join", "USING is not supported", self._clean, tree.this, hint=hint)
        right = self._relation(tree.this, ctes)
        if clash := set(left.offered) & set(right.offered):
            hint = "give one of them another name with AS"
            raise error_at("duplicate-alias", f"two relations are named {min(clash)!r}", self._clean, tree.this, hint=hint)
        both = left.joined(right, kind, begin_of(self._clean, tree.this))
        conditions = []
        for one in conjuncts(_by_ends(tree.args.get("on"), both)):
            check_scalar(self._clean, one)
            conditions.append(both.resolve(one))
        return self._with_conditions(left, both, conditions)

    def _unsupported_join(self, tree: exp.Join) -> SbonError:
        word = " ".join(w for w in (tree.method, tree.side, tree.kind) if w).upper()
        hints = {
            "ANTI": f"LEFT JOIN ... ON ..., and WHERE a column of {tree.this.alias_or_name} IS NULL",
            "SEMI": "swap the sides and write LEFT SEMI JOIN, or WHERE EXISTS (SELECT ...)",
        }
        hint = hints.get(tree.kind.upper(), "write JOIN ... ON, with an equality and a bound in time")
        return error_at("unsupported-join", f"{word} JOIN is not supported", self._clean, tree.this, hint=hint)

    def _with_conditions(self, left: Scope, both: Scope, conditions: Sequence[exp.Expr]) -> Scope:
        join = both.relation
        assert isinstance(join, Join)
        sides = {name: column(at, side) for name, side, at in join.columns}
        qualified = tuple(
            one.transform(lambda n: in_place_of(n, sides[n.name]) if isinstance(n, exp.Column) else n) for one in conditions
        )
        if join.kind != "semi":
            return Scope(self._clean, replace(join, conditions=qualified), both.offered)
        kept = tuple(one for one in join.columns if one[1] == LEFT)
        return Scope(self._clean, replace(join, conditions=qualified, columns=kept), left.offered)

    def _where(self, scope: Scope, condition: exp.Expr, ctes: Mapping[str, Relation]) -> Scope:
        plain = []
        for one in conjuncts(_by_ends(condition, scope)):
            if isinstance(one, exp.Exists):
                scope = self._semi(scope, one.this, None, ctes)
            elif isinstance(one, exp.In) and one.args.get("query"):
                scope = self._semi(scope, one.args["query"], one.this, ctes)
            elif (isinstance(one, exp.Not) and isinstance(one.this.unnest(), exp.Exists)) or _is_not_in(one):
                hint = "LEFT JOIN ... and WHERE a column of the right side IS NULL"
                raise error_at("unsupported-subquery", "NOT EXISTS and NOT IN are not supported", self._clean, one, hint=hint)
            else:
                check_scalar(self._clean, one)
                plain.append(scope.resolve(one))
        if not plain:
            return scope
        passed = tuple(Output(name, column(name)) for name in scope.relation.names)
        return Scope(self._clean, Select(scope.relation, passed, tuple(plain)), scope.offered)

    def _semi(self, outer: Scope, tree: exp.Expr, member: exp.Expr | None, ctes: Mapping[str, Relation]) -> Scope:
        """``EXISTS`` and ``IN``: a left semi-join with the correlated conditions."""
        select = tree.unnest()
        if not isinstance(select, exp.Select) or is_grouped(select) or select.args.get("with_"):
            hint = "join with the sub-query instead"
            raise error_at("unsupported-subquery", "only SELECT ... FROM ... WHERE can stand here", self._clean, tree, hint=hint)
        check_clauses(self._clean, select, self._tokens)
        inner = self._from(select, ctes)
        start = begin_of(self._clean, tree)
        both = outer.joined(inner, "semi", start)
        own, correlated = [], []
        for one in conjuncts(select.args["where"].this) if select.args.get("where") else ():
            check_scalar(self._clean, one)
            if all(inner.find(reference) is not None for reference in one.find_all(exp.Column)):
                own.append(inner.resolve(one))
            else:
                correlated.append(self._inner_first(both, inner, outer, one))
        if member is not None:
            if len(select.expressions) != 1 or isinstance(select.expressions[0], exp.Star):
                raise error_at("bad-sql", "IN takes one column", self._clean, tree, hint="select one expression")
            wanted = select.expressions[0].unalias()
            check_scalar(self._clean, member)
            check_scalar(self._clean, wanted)
            equal = exp.EQ(this=outer.resolve(member), expression=self._inner_first(both, inner, outer, wanted))
            correlated.append(equal)
        if own:
            passed = tuple(Output(name, column(name)) for name in inner.relation.names)
            inner = Scope(self._clean, Select(inner.relation, passed, tuple(own)), inner.offered)
            both = outer.joined(inner, "semi", start)
        return self._with_conditions(outer, both, correlated)

    def _inner_first(self, both: Scope, inner: Scope, outer: Scope, expression: exp.Expr) -> exp.Expr:
        """Resolved in the joined relation: what the sub-query itself offers hides what is around it."""

        def meant(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            name = inner.find(node)
            if name is None and (outer.find(node) is None or node.table.lower() in inner.offered):
                raise Scope(self._clean, both.relation, {**outer.offered, **inner.offered}).unknown(node)
            if name is None:
                return outer.resolve(node)
            assert isinstance(both.relation, Join)
            new = next(new for new, side, at in both.relation.columns if side == RIGHT and at == name)
            return in_place_of(node, column(new))

        return expression.transform(meant)

    def _stream(self, table: exp.Expr, ctes: Mapping[str, Relation]) -> CatalogEntry:
        streams = self._streams
        entry = streams.get(table.name) or streams.get(table.name.lower())
        if entry is not None and not entry.sources:
            name = entry.declaration.name
            hint = f"sbon stream attach {name} ..."
            raise error_at("no-sources", f"the stream {name!r} has no sources", self._clean, table, hint=hint)
        if entry is not None:
            return entry
        near = difflib.get_close_matches(table.name.lower(), sorted({*streams, *ctes}), n=3, cutoff=0.6)
        if near:
            hint = f"did you mean {' or '.join(near)}?"
        elif streams:
            known = sorted(streams)
            hint = f"there are {', '.join(known[:8])}{' ...' if len(known) > 8 else ''}"
        else:
            hint = "there are no streams yet: sbon stream create"
        raise error_at("unknown-stream", f"there is no stream {table.name!r}", self._clean, table, hint=hint)

    # -- SELECT and GROUP BY ------------------------------------------------------------------------------------------

    def _expanded(self, tree: exp.Select, scope: Scope) -> list[exp.Expr]:
        """The SELECT list with its stars and its windows as the columns they stand for."""
        if not tree.expressions:
            hint = "write SELECT expressions FROM stream"
            raise refusal("bad-sql", "nothing is selected", self._clean, 0, offending=self._clean, hint=hint)
        found: list[exp.Expr] = []
        for one in tree.expressions:
            for node in one.find_all(exp.Window, exp.Query, exp.WithinGroup, exp.Filter, exp.IgnoreNulls, exp.RespectNulls):
                check_scalar(self._clean, node)
            if isinstance(one, exp.Star) and any(one.args.values()):
                raise error_at("unsupported-expression", "* with conditions", self._clean, one, hint="name the columns")
            star = isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star))
            piece = _piece(one.unalias())
            if star:
                found += scope.columns_of(one)
            elif piece and (is_grouped(tree) or scope.find(_end_of(piece, "end"))):
                prefix = one.alias or piece
                found += [exp.alias_(_end_of(piece, end), f"{prefix}_{end}") for end in ("start", "end")]
            else:
                found.append(one)
        if len(found) > MAX_COLUMNS:
            message = f"{len(found)} columns, {MAX_COLUMNS} are allowed"
            raise refusal("query-too-long", message, self._clean, 0, hint="name the columns needed")
        return found

    def _grouped(self, tree: exp.Select, scope: Scope) -> Relation:
        expanded = self._expanded(tree, scope)
        group = tree.args.get("group")
        if group is not None and (unknown := [name for name, value in group.args.items() if value and name != "expressions"]):
            raise error_at(
                "unsupported-group-by", f"{unknown[0].upper()} is not supported", self._clean, group, hint="list the keys"
            )
        if tree.args.get("distinct") and group is not None:
            hint = "the groups differ already; leave DISTINCT out"
            raise error_at("unsupported-distinct", "DISTINCT over groups", self._clean, tree, hint=hint)
        by = self._keys(tree, expanded, scope)
        grouping = Grouping.by(scope, by)
        if not by:
            raise ungrouped(scope, expanded[0])
        outputs = [(one, grouping.lift(one.unalias())) for one in expanded]
        having = tree.args.get("having")
        holding = with_names(having.this, _named_outputs(expanded)) if having is not None else None
        conditions = tuple(grouping.lift(one) for one in conjuncts(holding))
        return self._outputs(grouping.relation(start_of(group or tree), _words(tree)), outputs, conditions)

    def _keys(self, tree: exp.Select, expanded: Sequence[exp.Expr], scope: Scope) -> list[exp.Expr]:
        """What is grouped by; a name of an output stands for what it is made of, and DISTINCT groups by all outputs."""
        if tree.args.get("distinct"):
            cuts = [cut for one in tree.expressions for node in one.walk() if (cut := _cut_of(node)) is not None]
            bare = [one.unalias() for one in expanded]
            return [*cuts[:1], *(one for one in bare if not _is_end(one) and not isinstance(one, exp.Literal))] if cuts else bare
        group = tree.args.get("group")
        made = _named_outputs(expanded)
        keys: list[exp.Expr] = []
        for key in group.expressions if group is not None else ():
            one = self._at_position(tree, key) if isinstance(key, exp.Literal) and not key.is_string else key
            named = isinstance(one, exp.Column) and not one.table and scope.find(one) is None
            meant = made.get(one.name.lower(), one) if named else one
            whole = _piece(meant) if isinstance(meant, exp.Column) else ""
            keys += [_end_of(whole, end) for end in ("start", "end")] if whole else [meant]
        return keys

    def _at_position(self, tree: exp.Select, number: exp.Literal) -> exp.Expr:
        """``GROUP BY 2`` is by the second of the SELECT list."""
        listed = tree.expressions
        starred = any(isinstance(one, exp.Star) or isinstance(one.this, exp.Star) for one in listed if not call_name(one))
        if starred or not number.name.isdigit() or not 1 <= int(number.name) <= len(listed):
            hint = f"there are 1 to {len(listed)}, or name the column"
            raise error_at("unsupported-group-by", "no position in the SELECT list", self._clean, number, hint=hint)
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
                raise error_at("bad-name", f"{name!r} is not a column's name", self._clean, written, hint=hint)
            if name.lower() in seen:
                hint = "name one of them with AS"
                raise error_at("duplicate-column", f"two outputs are named {name!r}", self._clean, written, hint=hint)
            seen.add(name.lower())
            named_outputs.append(Output(name, resolved))
        return Select(relation, tuple(named_outputs), conditions)


def _named_outputs(expanded: Sequence[exp.Expr]) -> dict[str, exp.Expr]:
    return {one.alias.lower(): one.unalias() for one in expanded if isinstance(one, exp.Alias)}


def _words(tree: exp.Select) -> str:
    return "SELECT DISTINCT" if tree.args.get("distinct") else "GROUP BY"


def _renamed(relation: Relation, names: Sequence[str]) -> Select:
    return Select(relation, tuple(Output(new, column(old)) for new, old in zip(names, relation.names, strict=True)))


def _is_not_in(node: exp.Expr) -> bool:
    inner = node.this.unnest() if isinstance(node, exp.Not) else None
    return isinstance(inner, exp.In) and bool(inner.args.get("query"))


def _piece(node: exp.Expr) -> str:
    """``window`` or ``session_window`` where the whole of it is selected."""
    name = call_name(node) or (node.name.lower() if isinstance(node, exp.Column) and not node.table else "")
    return name if name in PIECES else ""


def _end_of(piece: str, end: str, alias: object = None) -> exp.Column:
    """``window.start`` or ``window.end``, of the relation ``alias`` if there is one."""
    return exp.Column(this=exp.Identifier(this=end), table=exp.Identifier(this=piece), db=alias)


def _by_ends(condition: exp.Expr | None, scope: Scope) -> exp.Expr | None:
    """``a.window = b.window`` as an equality of their starts and one of their ends."""

    def by_ends(node: exp.Expr) -> exp.Expr:
        sides = (node.this, node.expression) if isinstance(node, exp.EQ) else ()
        names = {one.name.lower() for one in sides if isinstance(one, exp.Column) and scope.find(one) is None}
        if len(names) != 1 or not names <= set(PIECES) or not all(isinstance(one, exp.Column) for one in sides):
            return node
        piece = names.pop()
        ends = ([_end_of(piece, end, one.args.get("table")) for one in sides] for end in ("start", "end"))
        starts, stops = (exp.EQ(this=one, expression=other) for one, other in ends)
        return exp.Paren(this=exp.And(this=starts, expression=stops))

    return condition.copy().transform(by_ends) if condition is not None else None


def _is_end(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.table.lower() in PIECES and not node.args.get("db")


def _cut_of(node: exp.Expr) -> exp.Expr | None:
    """The call of ``window`` a part of the SELECT list is, or was."""
    return node if call_name(node) in PIECES else node.meta.get("cut")


def _plain_window(node: exp.Expr) -> exp.Expr:
    """``window(ts, '1 hour').start`` as ``window.start``; ``window_time(w.window)`` as a microsecond before ``w.window.end``."""
    if isinstance(node, exp.Dot) and call_name(node.this) in PIECES and isinstance(node.expression, exp.Identifier):
        end = _end_of(call_name(node.this), node.expression.name.lower())
        end.meta["cut"] = node.this
        return end
    piece = node.expressions[0] if call_name(node) == "window_time" and len(node.expressions) == 1 else None
    if not isinstance(piece, exp.Column) or piece.name.lower() not in PIECES:
        return node
    end = _end_of(piece.name.lower(), "end", piece.args.get("table"))
    return exp.Sub(this=end, expression=exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this="MICROSECOND")))


def _made_name(expression: exp.Expr, taken: set[str]) -> str:
    """A name for an output without one, of the words of its text."""
    words = re.findall(r"[a-z0-9]+", render(expression).lower())
    name = "_".join(words)[:40].rstrip("_") or "column"
    name = name if name[0].isalpha() else f"c_{name}"
    return next(one for one in (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3))) if one not in taken)
