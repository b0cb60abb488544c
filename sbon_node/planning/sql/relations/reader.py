"""Reader from a user's SQL to relations: resolves names by the catalogue and refuses unsupported SQL."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sbon_node.model.schema import MAX_COLUMNS, NAME_HINT, is_column_name
from sbon_node.planning.sql.checks.allowlist import check_scalar
from sbon_node.planning.sql.relations.grouping import Grouping, filtered_aggregate, is_grouped, ungrouped, with_names
from sbon_node.planning.sql.relations.logical import (
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
    put,
)
from sbon_node.planning.sql.relations.scope import (
    Scope,
    by_ends,
    cut_of,
    end_of,
    free_name,
    is_end,
    plain_window,
    window_column_of,
)
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.syntax.dialect import begin_of, call_name, error_at, render, start_of
from sbon_node.planning.sql.syntax.lexical import RESERVED, Token, refusal, scan
from sbon_node.planning.sql.syntax.shape import check_alias, check_clauses, check_relation, instead_of, one_query, respell
from sbon_protocol.api.catalogue import CatalogEntry, StreamDeclaration
from sbon_protocol.errors import SbonError, did_you_mean

_KINDS: dict[tuple[str, str], JoinKind] = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner", ("LEFT", ""): "left", ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right", ("RIGHT", "OUTER"): "right", ("FULL", ""): "full", ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi", ("", "SEMI"): "semi",
}  # fmt: skip

_ONE_OF_THEM = "drop one of the views that read each other, and create it anew"


def read_query(text: str, catalog: Mapping[str, CatalogEntry], settings: QuerySettings) -> Relation:
    """Parse, check against the allow-list, and resolve. Raises :class:`SbonError` with line, column and hint."""
    clean, tokens = _scanned(text, settings)
    try:
        return _Reader(clean, tokens, catalog, settings).query(_prepared(clean, tokens, settings), {})
    except SbonError as error:
        raise _unquoted(clean, tokens, catalog) or error from None


def _scanned(text: str, settings: QuerySettings) -> tuple[str, list[Token]]:
    return scan(text, strict=False, max_text=settings.max_text, max_brackets=settings.max_brackets)


def _prepared(clean: str, tokens: list[Token], settings: QuerySettings) -> exp.Expr:
    """Parse the text of one query."""
    tree = one_query(clean, tokens, settings.max_depth).transform(plain_window)
    respell(clean, tree)
    return tree.transform(filtered_aggregate)


class _Reader:
    """Reads the SELECTs of a text, the inner ones first."""

    def __init__(self, clean: str, tokens: list[Token], catalog: Mapping[str, CatalogEntry], settings: QuerySettings) -> None:
        self._clean, self._tokens, self._settings = clean, tokens, settings
        self._streams = {name: entry for name, entry in catalog.items() if not entry.dropped}
        self._relations = 0
        self._views: list[str] = []
        """Views within whose text the reader is, the outermost first."""

    def query(self, tree: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
        """Read a SELECT, or several with UNION ALL, after their common table expressions."""
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
        return _SelectList(self._clean, tree, scope).relation()

    # -- FROM and WHERE -----------------------------------------------------------------------------------------------

    def _from(self, tree: exp.Select, ctes: Mapping[str, Relation]) -> Scope:
        source = tree.args.get("from_")
        if source is None:
            if (misspelling := instead_of(self._clean, self._tokens, "FROM")) is not None:
                raise misspelling
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
        if known is None:
            entry = self._stream(tree, ctes)
            known = self._view(entry.declaration, tree) if entry.declaration.sql else Scan(entry)
        return Scope.of(self._clean, tree.alias_or_name, known)

    def _view(self, view: StreamDeclaration, table: exp.Expr) -> Relation:
        """Read a view's text in place of its name, to which errors point then."""
        if view.name in self._views:
            raise error_at("view-of-itself", f"the view {view.name!r} reads itself", self._clean, table, hint=_ONE_OF_THEM)
        tokens, start = self._tokens, begin_of(self._clean, table)
        self._views.append(view.name)
        try:
            clean, self._tokens = _scanned(view.sql, self._settings)
            tree = _prepared(clean, self._tokens, self._settings)
            for node in tree.walk():
                node.meta["start"] = start
            return self.query(tree, {})
        except SbonError as error:
            within = error.message if error.code == "view-of-itself" else f"in the view {view.name!r}: {error.message}"
            raise error_at(error.code, within, self._clean, table, hint=error.hint) from error
        finally:
            self._tokens = tokens
            self._views.pop()

    def _join(self, left: Scope, tree: exp.Join, ctes: Mapping[str, Relation]) -> Scope:
        kind = _KINDS.get((tree.side.upper(), tree.kind.upper())) if not tree.method else None
        if kind is None:
            raise self._unsupported_join(tree)
        if tree.args.get("using"):
            names = [identifier.name for identifier in tree.args["using"]]
            first, second = next(iter(left.offered)), tree.this.alias_or_name
            hint = "write ON " + " AND ".join(f"{first}.{name} = {second}.{name}" for name in names)
            raise error_at("unsupported-join", "USING is not supported", self._clean, tree.this, hint=hint)
        right = self._relation(tree.this, ctes)
        if clash := set(left.offered) & set(right.offered):
            hint = "give one of them another name with AS"
            raise error_at("duplicate-alias", f"two relations are named {min(clash)!r}", self._clean, tree.this, hint=hint)
        both = left.joined(right, kind, begin_of(self._clean, tree.this))
        conditions = []
        for conjunct in conjuncts(by_ends(tree.args.get("on"), both)):
            check_scalar(self._clean, conjunct)
            conditions.append(both.resolve(conjunct))
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
        at_sides = join.at_sides
        qualified = tuple(put(condition, at_sides) for condition in conditions)
        if join.kind != "semi":
            return Scope(self._clean, replace(join, conditions=qualified), both.offered)
        columns = tuple(entry for entry in join.columns if entry[1] == LEFT)
        return Scope(self._clean, replace(join, conditions=qualified, columns=columns), left.offered)

    def _where(self, scope: Scope, condition: exp.Expr, ctes: Mapping[str, Relation]) -> Scope:
        plain = []
        for conjunct in conjuncts(by_ends(condition, scope)):
            if isinstance(conjunct, exp.Exists):
                scope = self._semi(scope, conjunct.this, None, ctes)
            elif isinstance(conjunct, exp.In) and conjunct.args.get("query"):
                scope = self._semi(scope, conjunct.args["query"], conjunct.this, ctes)
            elif _is_denied_subquery(conjunct):
                hint = "LEFT JOIN ... and WHERE a column of the right side IS NULL"
                message = "NOT EXISTS and NOT IN are not supported"
                raise error_at("unsupported-subquery", message, self._clean, conjunct, hint=hint)
            else:
                check_scalar(self._clean, conjunct)
                plain.append(scope.resolve(conjunct))
        return scope.filtered(plain) if plain else scope

    def _semi(self, outer: Scope, tree: exp.Expr, member: exp.Expr | None, ctes: Mapping[str, Relation]) -> Scope:
        """Read ``EXISTS`` and ``IN`` as a left semi-join with the correlated conditions."""
        select = tree.unnest()
        if not isinstance(select, exp.Select) or is_grouped(select) or select.args.get("with_"):
            hint = "join with the sub-query instead"
            raise error_at("unsupported-subquery", "only SELECT ... FROM ... WHERE is allowed here", self._clean, tree, hint=hint)
        check_clauses(self._clean, select, self._tokens)
        inner = self._from(select, ctes)
        start = begin_of(self._clean, tree)
        both = outer.joined(inner, "semi", start)
        own, correlated = [], []
        for conjunct in conjuncts(select.args["where"].this) if select.args.get("where") else ():
            check_scalar(self._clean, conjunct)
            if all(inner.find(reference) is not None for reference in conjunct.find_all(exp.Column)):
                own.append(inner.resolve(conjunct))
            else:
                correlated.append(self._inner_first(both, inner, outer, conjunct))
        if member is not None:
            if len(select.expressions) != 1 or isinstance(select.expressions[0], exp.Star):
                raise error_at("bad-sql", "IN takes one column", self._clean, tree, hint="select one expression")
            selected = select.expressions[0].unalias()
            check_scalar(self._clean, member)
            check_scalar(self._clean, selected)
            equal = exp.EQ(this=outer.resolve(member), expression=self._inner_first(both, inner, outer, selected))
            correlated.append(equal)
        if own:
            inner = inner.filtered(own)
            both = outer.joined(inner, "semi", start)
        return self._with_conditions(outer, both, correlated)

    def _inner_first(self, both: Scope, inner: Scope, outer: Scope, expression: exp.Expr) -> exp.Expr:
        """Resolve an expression in the joined relation; the sub-query's names hide the outer names."""

        def inner_or_outer(node: exp.Expr) -> exp.Expr:
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

        return expression.transform(inner_or_outer)

    def _stream(self, table: exp.Expr, ctes: Mapping[str, Relation]) -> CatalogEntry:
        streams = self._streams
        entry = streams.get(table.name) or streams.get(table.name.lower())
        if entry is not None and not entry.sources and not entry.declaration.sql:
            name = entry.declaration.name
            hint = f"sbon stream attach {name} ..."
            raise error_at("no-sources", f"the stream {name!r} has no sources", self._clean, table, hint=hint)
        if entry is not None:
            return entry
        known = sorted(streams)
        hint = f"there are {', '.join(known[:8])}{' ...' if len(known) > 8 else ''}"
        hint = did_you_mean(table.name, {*streams, *ctes}, hint if known else "there are no streams yet: sbon stream create")
        raise error_at("unknown-stream", f"there is no stream {table.name!r}", self._clean, table, hint=hint)


def _renamed(relation: Relation, names: Sequence[str]) -> Select:
    return Select(relation, tuple(Output(new, column(old)) for new, old in zip(names, relation.names, strict=True)))


def _is_denied_subquery(node: exp.Expr) -> bool:
    inner = node.this.unnest() if isinstance(node, exp.Not) else None
    return isinstance(inner, exp.Exists) or (isinstance(inner, exp.In) and bool(inner.args.get("query")))


def _unquoted(clean: str, tokens: Sequence[Token], catalog: Mapping[str, CatalogEntry]) -> SbonError | None:
    """Return the error for an unquoted SQL word that names a stream, if any."""
    for before, token in itertools.pairwise(tokens):
        name = token.text.lower()
        bare = before.kind == token.kind == "word" and before.text.lower() in ("from", "join")
        if bare and name in RESERVED and name in catalog and not catalog[name].dropped:
            hint = f"put the stream's name in back-quotes: `{name}`"
            return refusal("bad-sql", f"{name} is a word of SQL", clean, token.start, offending=token.text, hint=hint)
    return None


# -- A SELECT's list of outputs, its groups, and their names, over FROM and WHERE -------------------------------------


@dataclass(frozen=True, slots=True)
class _SelectList:
    """The list of a SELECT over ``scope``, which holds its FROM and WHERE."""

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
            message = f"{unknown[0].upper()} is not supported"
            raise error_at("unsupported-group-by", message, self.clean, group, hint="list the keys")
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
        words = "SELECT DISTINCT" if self.tree.args.get("distinct") else "GROUP BY"
        return self._outputs(grouping.relation(start_of(group or self.tree), words), outputs, conditions)

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


def _made_name(expression: exp.Expr, used: set[str]) -> str:
    """Return a name for an unnamed output, made from the words of its text."""
    words = re.findall(r"[a-z0-9]+", render(expression).lower())
    name = "_".join(words)[:40].rstrip("_") or "column"
    name = name if name[0].isalpha() else f"c_{name}"
    return free_name(name, used)
