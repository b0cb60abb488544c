"""Allowed statements, clauses and relations of a query; others are refused with their place."""

from __future__ import annotations

import itertools
import re

from sqlglot import exp

from sbon_node.planning.sql.syntax.depth import MAX_DEPTH, balance, check_depth
from sbon_node.planning.sql.syntax.dialect import begin_of, error_at, parse
from sbon_node.planning.sql.syntax.lexical import Token, clause, offset_of, refusal
from sbon_node.planning.sql.syntax.misspelt import explained, instead_of_statement, meant
from sbon_protocol.errors import SbonError


def one_query(clean: str, tokens: list[Token], max_depth: int = MAX_DEPTH) -> exp.Expr:
    """Parse the text as exactly one query.

    A query is a SELECT, or several with UNION ALL, possibly after WITH; other statements are refused by their first word.
    """
    if not tokens:
        raise refusal("empty-query", "there is no query", clean, 0, hint="write SELECT expressions FROM stream WHERE condition")
    first = tokens[0]
    if first.text != "(" and (first.kind != "word" or first.text.lower() not in ("select", "with")):
        word = meant(first.text)
        hint = f"did you mean {word}?" if word in ("SELECT", "WITH") else instead_of_statement(first.text)
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
    _check_named_windows(clean, tokens)
    statements = _parsed(clean, tokens)
    if len(statements) != 1:
        raise refusal("several-statements", f"{len(statements)} statements", clean, 0, hint="submit one query at a time")
    statement = statements[0]
    balance(statement)
    check_depth(clean, statement, max_depth)
    for operation in statement.find_all(exp.SetOperation):
        if not isinstance(operation, exp.Union) or operation.args.get("distinct"):
            raise _not_union_all(clean, tokens)
        if operation.args.get("by_name"):
            at = next(a.start for a, b in itertools.pairwise(tokens) if (a.text.lower(), b.text.lower()) == ("by", "name"))
            hint = "write the columns of each part in the same order"
            raise refusal("unsupported-union", "BY NAME is not supported", clean, at, offending=clean[at : at + 7], hint=hint)
    if not isinstance(statement, exp.Select | exp.SetOperation | exp.Subquery):
        raise refusal("not-a-select", "only SELECT is allowed", clean, first.start, offending=clean[first.start :])
    return statement


def _not_union_all(clean: str, tokens: list[Token]) -> SbonError:
    """Return the error for UNION, EXCEPT or INTERSECT, at the first that is not UNION ALL."""
    operations = ("union", "except", "intersect", "minus")
    word = next(
        token
        for token, after in itertools.pairwise([*tokens, tokens[-1]])
        if token.kind == "word"
        and token.text.lower() in operations
        and (token.text.lower(), after.text.lower()) != ("union", "all")
    )
    name = word.text.upper()
    message = f"{name} compares all rows, and streams have no end" if name != "UNION" else _UNION
    return refusal("unsupported-union", message, clean, word.start, offending=word.text, hint=_INSTEAD[name])


_UNION = "UNION without ALL compares all rows, and streams have no end"
_ANTI = "LEFT JOIN ... and WHERE a column of the right side IS NULL"
_INSTEAD = {
    "UNION": "write UNION ALL; equal rows of a window become one by SELECT DISTINCT window(event time, '1 hour'), ... FROM (...)",
    "INTERSECT": "WHERE EXISTS (SELECT ...), with an equality and a bound in time",
    "EXCEPT": _ANTI,
    "MINUS": _ANTI,
}


def _parsed(clean: str, tokens: list[Token]) -> list[exp.Expr]:
    """Return the statements. If the parser stops at a misspelt SQL word, the error says so."""
    try:
        return parse(clean)
    except SbonError as error:
        start = offset_of(clean, error.where)
        raise (explained(error, clean, tokens, start) if error.code == "bad-sql" and start else error) from None


def _check_script(clean: str, tokens: list[Token]) -> None:
    """Refuse ``SELECT TRANSFORM(..) USING 'command'`` and its old forms, which run a shell."""
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


def _check_named_windows(clean: str, tokens: list[Token]) -> None:
    """Refuse ``WINDOW w AS (PARTITION BY ...)``; the parser takes the word for a name."""
    for window, _, as_, opened in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        if (window.text.lower(), as_.text.lower(), opened.text) == ("window", "as", "("):
            hint = "aggregate by GROUP BY window(event time, '1 hour')"
            offending = clause(clean, window.start)
            raise refusal(
                "unsupported-window", "OVER needs all rows in order", clean, window.start, offending=offending, hint=hint
            )


_CLAUSES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "laterals": ("unsupported-generator", ("lateral",), "one row in gives at most one row out"),
    "order": ("unsupported-order-by", ("order",), "a stream has no end, so it cannot be sorted; sort where the rows arrive"),
    "sort": ("unsupported-order-by", ("sort",), "a stream has no end, so it cannot be sorted; sort where the rows arrive"),
    "limit": ("unsupported-limit", ("limit", "fetch"), "stop the query when there are rows enough: sbon query stop"),
    "offset": ("unsupported-limit", ("offset",), "a query starts at the earliest retained row"),
    "qualify": ("unsupported-window", ("qualify",), "aggregate by GROUP BY window(event time, '1 hour'), with HAVING"),
    "distribute": ("unsupported-clause", ("distribute",), "leave it out: the engine spreads the rows"),
    "cluster": ("unsupported-clause", ("cluster",), "leave it out: the engine spreads the rows"),
    "sample": ("unsupported-clause", ("tablesample", "using"), "samples are not repeatable; filter by hash(column) % n = 0"),
    "pivots": ("unsupported-clause", ("pivot", "unpivot"), "write the columns: sum(CASE WHEN key = 'a' THEN value END) AS a"),
    "joins": ("unsupported-join", ("a join in brackets",), "write FROM a JOIN b ON ... without brackets, or a sub-query"),
    "hint": ("unsupported-hint", ("/*+",), "placement is chosen with --strategy"),
    "into": ("not-a-select", ("into",), "use --sink"),
    "kind": ("unsupported-clause", ("as",), "select the columns by name"),
}


_OF_A_SELECT = frozenset({"with_", "expressions", "from_", "joins", "where", "group", "having", "distinct"})
_OF_A_UNION = frozenset({"with_", "this", "expression", "distinct"})


def check_clauses(clean: str, query: exp.Expr, tokens: list[Token]) -> None:
    """Refuse clauses that have no meaning for unbounded streams."""
    known = _OF_A_SELECT if isinstance(query, exp.Select) else _OF_A_UNION
    for name, value in query.args.items():
        if not value or name in known:
            continue
        code, words, hint = _CLAUSES.get(
            name, ("unsupported-clause", (name.rstrip("_"),), "write SELECT expressions FROM stream WHERE condition")
        )
        at = _find(tokens, words)
        start = at.start if at else 0
        shown = clause(clean, start) if at else name
        word = at.text if at and at.text != "," else words[0]
        word = f"{word} by" if word.lower() in ("order", "sort", "distribute", "cluster") else word
        raise refusal(code, f"{word.upper()} is not supported", clean, start, offending=shown, hint=hint)
    with_ = query.args.get("with_")
    if with_ is not None and with_.args.get("recursive"):
        recursive = next(token.start for token in tokens if token.text.lower() == "recursive")
        hint = "write WITH, and each query after those it reads"
        raise refusal("unsupported-cte", "a recursion has no end", clean, recursive, offending="RECURSIVE", hint=hint)
    distinct = query.args.get("distinct")
    if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
        raise error_at("unsupported-distinct", "DISTINCT ON", clean, distinct, hint="GROUP BY window(event time, '1 hour')")


def _find(tokens: list[Token], words: tuple[str, ...]) -> Token | None:
    """Return the first of these bare words outside brackets, else anywhere. A comma counts only after FROM."""
    depth, seen_from = 0, False
    for token in tokens:
        if token.kind == "symbol":
            depth += (token.text in "([") - (token.text in ")]")
        seen_from |= token.kind == "word" and token.text.lower() == "from" and depth == 0
        if depth == 0 and token.text.lower() in words and token.kind in ("word", "symbol") and (token.text != "," or seen_from):
            return token
    return next((t for t in tokens if t.kind == "word" and t.text.lower() in words), None)


def check_relation(clean: str, relation: exp.Expr) -> None:
    """Check a relation in FROM: a bare name or a sub-query, with at most an alias."""
    catalogued = "only streams of the catalogue can be read: sbon stream list"
    if isinstance(relation, exp.Select):
        match = re.search(r"\b(?:from|join)\s+(select)\b", clean, re.IGNORECASE)
        hint = "put a sub-query in brackets, FROM (SELECT ...) alias, or the name of a stream in back-quotes"
        start = match.start(1) if match else begin_of(clean, relation)
        raise refusal("bad-sql", "SELECT without a bracket before it", clean, start, offending=clean[start:], hint=hint)
    if not isinstance(relation, exp.Table | exp.Subquery) or isinstance(relation.this, exp.Table):
        raise error_at(
            "unsupported-table-function",
            "FROM takes streams and sub-queries",
            clean,
            relation,
            hint="FROM stream, or FROM (SELECT ...) alias",
        )
    if isinstance(relation, exp.Table):
        if not isinstance(relation.this, exp.Identifier):
            raise error_at("unsupported-table-function", "table functions are not supported", clean, relation, hint=catalogued)
        if relation.args.get("db") or relation.args.get("catalog"):
            raise error_at("forbidden-path", "files and databases cannot be read", clean, relation, hint=catalogued)
    for name, value in relation.args.items():
        if value and name not in ("this", "alias"):
            code, words, hint = _CLAUSES.get(name, ("unsupported-clause", (name,), "write FROM stream [alias]"))
            raise error_at(code, f"{words[0].upper()} is not supported", clean, relation, hint=hint)
    check_alias(clean, relation)


def check_alias(clean: str, relation: exp.Expr) -> None:
    """Refuse ``t(a, b)``, which also names columns; columns are named in their SELECT."""
    alias = relation.args.get("alias")
    if alias is not None and any(value for name, value in alias.args.items() if name != "this"):
        raise error_at("unsupported-clause", "an alias with columns", clean, alias, hint="name the columns with AS")
