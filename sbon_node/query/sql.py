"""A user's SQL read into a query over one stream, its names resolved against the catalogue."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from sbon_node.errors import SbonError
from sbon_node.query.allowlist import check_expressions
from sbon_node.query.catalog import CatalogEntry
from sbon_node.query.dialect import error_at, render
from sbon_node.query.lexical import refusal, scan
from sbon_node.query.schema import MAX_COLUMNS
from sbon_node.query.settings import QuerySettings
from sbon_node.query.shape import check_clauses, check_table, one_select
from sbon_node.query.signature import canonical, canonical_tree


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """``select`` reads the stream of ``entry``; its columns are bare names as declared, every output has an alias."""

    text: str
    entry: CatalogEntry
    select: exp.Select

    @property
    def condition(self) -> exp.Expr | None:
        where = self.select.args.get("where")
        return where.this if where is not None else None

    def fragment(self) -> str:
        """The query over view ``in0``; raises ``ambiguous-expression`` where its text would be read in another way.

        ``a NOT IN (1) = b`` is such a case: NOT is written first and would take the comparison with it.
        """
        select = self.select.copy()
        select.set("from_", exp.From(this=exp.Table(this=exp.Identifier(this="in0"))))
        text = render(select)
        if canonical(text) != canonical_tree(select):
            raise refusal(
                "ambiguous-expression", "not clear what belongs together", self.text, 0, offending=text, hint="add brackets"
            )
        return text


def read_query(text: str, catalog: Mapping[str, CatalogEntry], settings: QuerySettings) -> SelectQuery:
    """Parses, checks against the allow-list and resolves; raises :class:`SbonError` with line, column and hint."""
    clean, tokens = scan(text, strict=False, max_text=settings.max_text)
    select = one_select(clean, tokens)
    check_clauses(clean, select, tokens)
    relation = check_table(clean, select)
    check_expressions(clean, select)
    entry = _stream(clean, relation, catalog)
    _resolve(clean, select, relation, entry)
    _name_outputs(clean, select)
    return SelectQuery(text, entry, select)


def _stream(clean: str, relation: exp.Table, catalog: Mapping[str, CatalogEntry]) -> CatalogEntry:
    streams = {name: entry for name, entry in catalog.items() if not entry.dropped}
    entry = streams.get(relation.name) or streams.get(relation.name.lower())
    if entry is not None:
        return entry
    near = difflib.get_close_matches(relation.name.lower(), sorted(streams), n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif streams:
        known = sorted(streams)
        hint = f"there are {', '.join(known[:8])}{' ...' if len(known) > 8 else ''}"
    else:
        hint = "there are no streams yet: sbon stream create"
    raise error_at("unknown-stream", f"there is no stream {relation.name!r}", clean, relation, hint=hint)


def _resolve(clean: str, select: exp.Select, relation: exp.Table, entry: CatalogEntry) -> None:
    """Every column becomes its bare declared name; stars become all columns."""
    names = [column.name for column in entry.declaration.schema]
    known = {name.lower(): name for name in names}
    qualifier = relation.alias_or_name.lower()
    outputs: list[exp.Expr] = []
    for one in select.expressions:
        star = isinstance(one, exp.Star) or (isinstance(one, exp.Column) and isinstance(one.this, exp.Star))
        if isinstance(one, exp.Column) and star:
            _check_qualifier(clean, one, qualifier)
        outputs += [_column(name, one) for name in names] if star else [one]
    if len(outputs) > MAX_COLUMNS:
        raise refusal(
            "query-too-long", f"{len(outputs)} columns, {MAX_COLUMNS} are allowed", clean, 0, hint="name the columns needed"
        )
    select.set("expressions", outputs)
    for column in [*select.find_all(exp.Column)]:
        _check_qualifier(clean, column, qualifier)
        name = known.get(column.name.lower())
        if name is None:
            near = difflib.get_close_matches(column.name.lower(), sorted(known), n=3, cutoff=0.5)
            listed = ", ".join(names[:12]) + (" ..." if len(names) > 12 else "")
            hint = (
                f"did you mean {' or '.join(known[one] for one in near)}?" if near else f"{entry.declaration.name} has {listed}"
            )
            message = f"{entry.declaration.name} has no column {column.name!r}"
            raise error_at("unknown-column", message, clean, column, hint=hint)
        column.replace(_column(name, column))


def _column(name: str, origin: exp.Expr) -> exp.Column:
    identifier = exp.Identifier(this=name)
    first = next((part.meta for part in origin.walk() if "start" in part.meta), {})
    identifier.meta.update(first)
    return exp.Column(this=identifier)


def _check_qualifier(clean: str, column: exp.Column, qualifier: str) -> None:
    if column.table and column.table.lower() != qualifier:
        hint = f"write {qualifier}.{column.name if not isinstance(column.this, exp.Star) else '*'}"
        raise error_at("unknown-alias", f"no stream of this query is called {column.table!r}", clean, column, hint=hint)


def _name_outputs(clean: str, select: exp.Select) -> None:
    """Gives every output a plain name: its alias, its column's name, or one made of its text."""
    named: list[exp.Expr] = []
    seen: set[str] = set()
    for one in select.expressions:
        name = one.alias_or_name if isinstance(one, exp.Alias | exp.Column) else _made_name(one)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", name):
            raise error_at(
                "bad-name", f"{name!r} is not a column's name", clean, one, hint="letters, digits and _ only, at most 128"
            )
        if name.lower() in seen:
            raise error_at("duplicate-column", f"two outputs are named {name!r}", clean, one, hint="name one of them with AS")
        seen.add(name.lower())
        bare = one.unalias()
        plain = isinstance(bare, exp.Column) and bare.name == name
        named.append(bare if plain else exp.alias_(bare, exp.Identifier(this=name), copy=False))
    select.set("expressions", named)


def _made_name(expression: exp.Expr) -> str:
    words = re.findall(r"[a-z0-9]+", render(expression).lower())
    name = "_".join(words)[:40].rstrip("_") or "column"
    return name if name[0].isalpha() else f"c_{name}"


def no_sources(entry: CatalogEntry) -> SbonError:
    name = entry.declaration.name
    return SbonError("no-sources", f"the stream {name!r} has no sources", where=name, hint=f"sbon stream attach {name} ...")
