"""The shape of a query: which statements, clauses and relations there may be; all else is refused with its place."""

from __future__ import annotations

import itertools

from sqlglot import exp

from sbon_node.errors import SbonError
from sbon_node.query.dialect import error_at, parse
from sbon_node.query.lexical import Token, refusal


def one_query(clean: str, tokens: list[Token]) -> exp.Expr:
    """Parses the text as exactly one query: a SELECT, or several with UNION ALL, perhaps after WITH; other statements are
    refused by their first word."""
    if not tokens:
        raise refusal("empty-query", "there is no query", clean, 0, hint="write SELECT expressions FROM stream WHERE condition")
    first = tokens[0]
    if first.text != "(" and (first.kind != "word" or first.text.lower() not in ("select", "with")):
        hint = "a query begins with SELECT"
        raise refusal("not-a-select", "only SELECT is allowed", clean, first.start, offending=clean[first.start :], hint=hint)
    for at, token in enumerate(tokens):
        if token.kind == "symbol" and token.text == ";":
            rest = [other for other in tokens[at:] if other.text != ";"]
            if rest:
                raise refusal(
                    "several-statements",
                    "one statement at a time",
                    clean,
                    rest[0].start,
                    offending=clean[rest[0].start :],
                    hint="submit one query at a time",
                )
    _check_script(clean, tokens)
    statements = parse(clean)
    if len(statements) != 1:
        raise refusal("several-statements", f"{len(statements)} statements", clean, 0, hint="submit one query at a time")
    statement = statements[0]
    for operation in statement.find_all(exp.SetOperation):
        if not isinstance(operation, exp.Union) or operation.args.get("distinct") or operation.args.get("by_name"):
            raise _not_union_all(clean, tokens)
    if not isinstance(statement, exp.Select | exp.SetOperation | exp.Subquery):
        raise refusal("not-a-select", "only SELECT is allowed", clean, first.start, offending=clean[first.start :])
    return statement


def _not_union_all(clean: str, tokens: list[Token]) -> SbonError:
    """For UNION, EXCEPT and INTERSECT, at the first of them that is not UNION ALL."""
    operations = ("union", "except", "intersect", "minus")
    word = next(
        token
        for token, after in itertools.pairwise([*tokens, tokens[-1]])
        if token.kind == "word"
        and token.text.lower() in operations
        and (token.text.lower(), after.text.lower()) != ("union", "all")
    )
    hint = "UNION ALL keeps all rows; DISTINCT works within a window"
    return refusal("unsupported-union", f"{word.text.upper()} has no end", clean, word.start, offending=word.text, hint=hint)


def _check_script(clean: str, tokens: list[Token]) -> None:
    """``SELECT TRANSFORM(..) USING 'command'`` and its old forms run a shell."""
    for select, first in itertools.pairwise(tokens):
        script = first.kind == "word" and first.text.lower() in ("transform", "map", "reduce")
        if script and select.text.lower() == "select" and any(t.kind == "word" and t.text.lower() == "using" for t in tokens):
            raise refusal(
                "forbidden-script",
                "scripts are not run",
                clean,
                first.start,
                offending=clean[first.start :],
                hint="use Spark's functions",
            )


_CLAUSES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "laterals": ("unsupported-generator", ("lateral",), "one row in gives at most one row out"),
    "order": ("unsupported-order-by", ("order",), "a stream has no end, so it cannot be sorted; sort where the rows arrive"),
    "sort": ("unsupported-order-by", ("sort",), "a stream has no end, so it cannot be sorted; sort where the rows arrive"),
    "limit": ("unsupported-limit", ("limit", "fetch"), "stop the query when there are rows enough: sbon query stop"),
    "offset": ("unsupported-limit", ("offset",), "a query starts at the earliest retained row"),
    "windows": ("unsupported-window", ("window",), "windows are not supported yet"),
    "qualify": ("unsupported-window", ("qualify",), "windows are not supported yet"),
    "sample": ("unsupported-clause", ("tablesample", "using"), "samples are not repeatable; filter by hash(column) % n = 0"),
    "pivots": ("unsupported-clause", ("pivot", "unpivot"), "select the columns by name"),
    "hint": ("unsupported-hint", ("/*+",), "placement is chosen with --strategy"),
    "into": ("not-a-select", ("into",), "use --sink"),
    "kind": ("unsupported-clause", ("as",), "select the columns by name"),
}


_OF_A_SELECT = frozenset({"with_", "expressions", "from_", "joins", "where", "group", "having", "distinct"})
_OF_A_UNION = frozenset({"with_", "this", "expression", "distinct"})


def check_clauses(clean: str, query: exp.Expr, tokens: list[Token]) -> None:
    """Nothing but the clauses that make sense of rows without an end."""
    known = _OF_A_SELECT if isinstance(query, exp.Select) else _OF_A_UNION
    for name, value in query.args.items():
        if not value or name in known:
            continue
        code, words, hint = _CLAUSES.get(
            name, ("unsupported-clause", (name.rstrip("_"),), "write SELECT expressions FROM stream WHERE condition")
        )
        at = _find(tokens, words)
        start = at.start if at else 0
        shown = clean[start : start + 60] if at else name
        clause = at.text if at and at.text != "," else words[0]
        clause = f"{clause} by" if clause.lower() in ("order", "sort") else clause
        raise refusal(code, f"{clause.upper()} is not supported", clean, start, offending=shown, hint=hint)
    with_ = query.args.get("with_")
    if with_ is not None and with_.args.get("recursive"):
        raise refusal("unsupported-cte", "WITH RECURSIVE has no end", clean, 0, offending="RECURSIVE", hint="write WITH")
    distinct = query.args.get("distinct")
    if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
        raise error_at("unsupported-distinct", "DISTINCT ON", clean, distinct, hint="GROUP BY window(event time, '1 hour')")


def _find(tokens: list[Token], words: tuple[str, ...]) -> Token | None:
    """The first bare word of these outside of brackets, else anywhere; a comma counts only after FROM."""
    depth, seen_from = 0, False
    for token in tokens:
        if token.kind == "symbol":
            depth += (token.text in "([") - (token.text in ")]")
        seen_from |= token.kind == "word" and token.text.lower() == "from" and depth == 0
        if depth == 0 and token.text.lower() in words and token.kind in ("word", "symbol") and (token.text != "," or seen_from):
            return token
    return next((t for t in tokens if t.kind == "word" and t.text.lower() in words), None)


def check_relation(clean: str, relation: exp.Expr) -> None:
    """What may stand in FROM: a bare name or a sub-query, with at most an alias."""
    catalogued = "only streams of the catalogue can be read: sbon stream list"
    if not isinstance(relation, exp.Table | exp.Subquery) or isinstance(relation.this, exp.Table):
        raise error_at("unsupported-table-function", "FROM takes streams and sub-queries", clean, relation, hint="FROM stream")
    if isinstance(relation, exp.Table):
        if not isinstance(relation.this, exp.Identifier):
            raise error_at("unsupported-table-function", "table functions are not supported", clean, relation, hint=catalogued)
        if relation.args.get("db") or relation.args.get("catalog"):
            raise error_at("forbidden-path", "files and databases cannot be read", clean, relation, hint=catalogued)
    for name, value in relation.args.items():
        if value and name not in ("this", "alias"):
            code = {"joins": "unsupported-join", "laterals": "unsupported-generator"}.get(name, "unsupported-clause")
            raise error_at(code, f"not supported after a relation ({name})", clean, relation, hint="write FROM stream [alias]")
    alias = relation.args.get("alias")
    if alias is not None and any(value for name, value in alias.args.items() if name != "this"):
        raise error_at("unsupported-clause", "an alias with columns", clean, relation, hint="name the columns with AS")
