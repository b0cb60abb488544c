"""The shape of a query: one SELECT of expressions from one relation with at most a WHERE; all else is refused with its place."""

from __future__ import annotations

from sqlglot import exp

from sbon_node.query.dialect import error_at, parse
from sbon_node.query.lexical import Token, refusal


def one_select(clean: str, tokens: list[Token]) -> exp.Select:
    """Parses the text as exactly one SELECT; other statements are refused by their first word."""
    if not tokens:
        raise refusal("empty-query", "there is no query", clean, 0, hint="write SELECT expressions FROM stream WHERE condition")
    first = tokens[0]
    if first.kind != "word" or first.text.lower() != "select":
        if first.kind == "word" and first.text.lower() == "with":
            raise refusal(
                "unsupported-cte", "WITH is not supported yet", clean, first.start, offending=first.text, hint="write one SELECT"
            )
        hint = "a query begins with SELECT"
        raise refusal("not-a-select", "only SELECT is allowed", clean, first.start, offending=clean[first.start :], hint=hint)
    for at, token in enumerate(tokens):
        if token.kind == "symbol" and token.text == ";":
            rest = [other for other in tokens[at:] if other.text != ";"]
            if rest:
                hint = "submit one query at a time"
                raise refusal(
                    "several-statements",
                    "one statement at a time",
                    clean,
                    rest[0].start,
                    offending=clean[rest[0].start :],
                    hint=hint,
                )
    _check_script(clean, tokens)
    statements = parse(clean)
    if len(statements) != 1:
        raise refusal("several-statements", f"{len(statements)} statements", clean, 0, hint="submit one query at a time")
    statement = statements[0]
    if isinstance(statement, exp.SetOperation):
        word = next(
            (t for t in tokens if t.kind == "word" and t.text.lower() in ("union", "except", "intersect", "minus")), first
        )
        raise refusal(
            "unsupported-union",
            f"{word.text.upper()} is not supported yet",
            clean,
            word.start,
            offending=word.text,
            hint="submit the parts as queries of their own",
        )
    if not isinstance(statement, exp.Select):
        raise refusal("not-a-select", "only SELECT is allowed", clean, first.start, offending=clean[first.start :])
    return statement


def _check_script(clean: str, tokens: list[Token]) -> None:
    """``SELECT TRANSFORM(..) USING 'command'`` and its old forms run a shell."""
    if len(tokens) > 1 and tokens[1].text.lower() in ("transform", "map", "reduce") and tokens[1].kind == "word":
        script = next((t for t in tokens if t.kind == "word" and t.text.lower() == "using"), None)
        if script is not None:
            raise refusal(
                "forbidden-script",
                "scripts are not run",
                clean,
                tokens[1].start,
                offending=clean[tokens[1].start :],
                hint="use Spark's functions",
            )


_CLAUSES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "with_": ("unsupported-cte", ("with",), "write one SELECT"),
    "joins": ("unsupported-join", ("join", ","), "submit a query for each stream"),
    "laterals": ("unsupported-generator", ("lateral",), "one row in gives at most one row out"),
    "group": ("unsupported-group-by", ("group",), "select rows, and aggregate where they arrive"),
    "having": ("unsupported-having", ("having",), "write the condition after WHERE"),
    "distinct": ("unsupported-distinct", ("distinct",), "a stream has no end, so all its rows would have to be kept"),
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


def check_clauses(clean: str, select: exp.Select, tokens: list[Token]) -> None:
    """Nothing but expressions, FROM and WHERE."""
    known = {"expressions", "from_", "where"}
    for name, value in select.args.items():
        if not value or name in known:
            continue
        code, words, hint = _CLAUSES.get(
            name, ("unsupported-clause", (name.rstrip("_"),), "write SELECT expressions FROM stream WHERE condition")
        )
        at = _find(tokens, words)
        start = at.start if at else 0
        shown = clean[start : start + 60] if at else name
        clause = at.text if at and at.text != "," else words[0]
        clause = f"{clause} by" if clause.lower() in ("group", "order", "sort") else clause
        raise refusal(
            code,
            f"{clause.upper()} is not supported yet",
            clean,
            start,
            offending=shown,
            hint=hint,
        )


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


def check_table(clean: str, select: exp.Select) -> exp.Table:
    """The one relation of FROM, a bare name with at most an alias."""
    source = select.args.get("from_")
    if source is None:
        raise refusal(
            "unsupported-no-from", "there is no FROM", clean, 0, offending=clean, hint="name the stream to read: FROM stream"
        )
    relation = source.this
    if isinstance(relation, exp.Subquery):
        raise error_at("unsupported-subquery", "sub-queries are not supported yet", clean, relation, hint="write one SELECT")
    if not isinstance(relation, exp.Table):
        raise error_at("unsupported-table-function", "FROM takes a stream", clean, relation, hint="write FROM stream")
    if not isinstance(relation.this, exp.Identifier):
        hint = "only streams of the catalogue can be read: sbon stream list"
        raise error_at("unsupported-table-function", "table functions are not supported", clean, relation, hint=hint)
    if relation.args.get("db") or relation.args.get("catalog"):
        hint = "only streams of the catalogue can be read: sbon stream list"
        raise error_at("forbidden-path", "files and databases cannot be read", clean, relation, hint=hint)
    for name, value in relation.args.items():
        if value and name not in ("this", "alias"):
            code = {"joins": "unsupported-join", "laterals": "unsupported-generator"}.get(name, "unsupported-clause")
            raise error_at(
                code, f"not supported after a stream's name ({name})", clean, relation, hint="write FROM stream [alias]"
            )
    alias = relation.args.get("alias")
    if alias is not None and any(value for name, value in alias.args.items() if name != "this"):
        raise error_at("unsupported-clause", "an alias with columns", clean, relation, hint="name the columns with AS")
    return relation
