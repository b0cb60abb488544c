"""Allowed statements, clauses, relations and depth of a query; others are refused with their place, or respelt for Spark."""

import difflib
import itertools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from sqlglot import exp

from sbon_node.planning.sql.syntax.dialect import begin_of, call_name, error_at, parse, start_of
from sbon_node.planning.sql.syntax.lexical import Token, clause, offset_of, refusal, words
from sbon_protocol.errors import SbonError


def one_query(clean: str, tokens: list[Token], max_depth: int) -> exp.Expr:
    """Parse the text as exactly one query.

    A query is a SELECT, or several with UNION ALL, possibly after WITH; other statements are refused by their first word.
    """
    if not tokens:
        raise refusal("empty-query", "there is no query", clean, 0, hint="write SELECT expressions FROM stream WHERE condition")
    first = tokens[0]
    if first.text != "(" and (first.kind != "word" or first.text.lower() not in ("select", "with")):
        word = meant(first.text)
        hint = f"did you mean {word}?" if word in ("SELECT", "WITH") else _STATEMENTS.get(first.text.lower(), _NO_STATEMENT)
        raise refusal("not-a-select", "only SELECT is allowed", clean, first.start, offending=clean[first.start :], hint=hint)
    for at, token in enumerate(tokens):
        if token.kind == "symbol" and token.text == ";":
            rest = [other for other in tokens[at:] if other.text != ";"]
            if rest:
                start, hint = rest[0].start, "submit one query at a time"
                raise refusal("several-statements", "one statement at a time", clean, start, offending=clean[start:], hint=hint)
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
    pairs = [(token, token.text.lower(), after.text.lower()) for token, after in itertools.pairwise([*tokens, tokens[-1]])]
    word = next(t for t, own, after in pairs if t.kind == "word" and own in operations and (own, after) != ("union", "all"))
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
            offending, hint = clean[first.start :], "use Spark's functions"
            raise refusal("forbidden-script", "scripts are not run", clean, first.start, offending=offending, hint=hint)


def _check_named_windows(clean: str, tokens: list[Token]) -> None:
    """Refuse ``WINDOW w AS (PARTITION BY ...)``; the parser takes the word for a name."""
    for window, _, as_, opened in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        if (window.text.lower(), as_.text.lower(), opened.text) == ("window", "as", "("):
            start, hint = window.start, "aggregate by GROUP BY window(event time, '1 hour')"
            message, offending = "OVER needs all rows in order", clause(clean, start)
            raise refusal("unsupported-window", message, clean, start, offending=offending, hint=hint)


_CLAUSES: dict[str, tuple[str, tuple[str, ...], str]] = {
    name: (clause["code"], tuple(clause["words"]), clause["hint"])
    for name, clause in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}
"""Code, first words and hint of each refused clause."""

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
        hint = "FROM stream, or FROM (SELECT ...) alias"
        raise error_at("unsupported-table-function", "FROM takes streams and sub-queries", clean, relation, hint=hint)
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


# -- Nesting depth of expressions --------------------------------------------------------------------------------------

_AROUND = (
    exp.Select, exp.SetOperation, exp.Subquery, exp.With, exp.CTE, exp.From, exp.Join, exp.Table,
    exp.Where, exp.Group, exp.Having, exp.Exists, exp.Distinct,
)  # fmt: skip
"""Tree nodes below which expressions begin."""


def balance(tree: exp.Expr) -> None:
    """Balance chains such as ``a AND b AND c AND d`` into pairs of pairs.

    The parser nests a chain as deep as it is long, and every walk over the tree recurses.
    """
    for node in list(tree.find_all(exp.And, exp.Or)):
        if type(node.parent) is not type(node):
            sides = _sides(node)
            if len(sides) > 3:
                pair = balanced(type(node), sides)
                node.set("this", pair.this)
                node.set("expression", pair.expression)


def _sides(node: exp.Expr) -> list[exp.Expr]:
    """Return the sides in the order in which they are written."""
    sides: list[exp.Expr] = []
    pending: list[exp.Expr] = [node]
    while pending:
        node_or_side = pending.pop()
        if type(node_or_side) is type(node):
            pending += [node_or_side.expression, node_or_side.this]
        else:
            sides.append(node_or_side)
    return sides


def balanced(connector: type[exp.Expr], sides: Sequence[exp.Expr]) -> exp.Expr:
    """Return the sides joined by AND or by OR, in pairs of pairs."""
    if len(sides) == 1:
        return sides[0]
    middle = len(sides) // 2
    return connector(this=balanced(connector, sides[:middle]), expression=balanced(connector, sides[middle:]))


def check_depth(clean: str, tree: exp.Expr, most: int) -> None:
    """Raise ``too-deep`` if more than ``most`` expressions are nested. A chain of AND or of OR counts once."""
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > most:
            message = f"more than {most} expressions inside one another"
            hint = "simplify the expression; query.max_depth sets the limit"
            raise refusal("too-deep", message, clean, start_of(node), hint=hint)
        flat = isinstance(node, exp.And | exp.Or)
        for child in node.iter_expressions(reverse=True):
            same = flat and type(child) is type(node)
            pending.append((child, 0 if isinstance(node, _AROUND) else depth if same else depth + 1))


# -- Misspelt words ----------------------------------------------------------------------------------------------------

_WORDS = sorted(words("select from where group order having join union left right inner full cross limit between with"))
_ALIKE = 0.7
_NEVER = words("for as by on in or and not is end all")
"""Correct words that resemble others."""

_OPERATORS = {
    "~": "use RLIKE: name RLIKE 'a.*'",
    "**": "use pow(a, b)",
    "top": "a stream has no end, so it has no first rows: stop the query when there are rows enough",
    "session": "GROUP BY session_window(event time, '10 minutes')",
}
"""Words of other dialects, and Spark's equivalents."""

_ROWS_COME = "rows come from sources: sbon stream attach, or sbon stream push"
_ROWS_STAY = "rows of a stream never change; select others of them with WHERE or CASE"
_NO_PAUSE = "a query cannot be paused: sbon query stop ends it, and sbon submit begins another one"
_SHELL = "it is a statement of the shell sbon sql, not of a query; see also sbon stream and sbon query"
_NO_STATEMENT = "a query begins with SELECT"
_STATEMENTS = {
    **dict.fromkeys(("insert", "load", "copy"), _ROWS_COME),
    **dict.fromkeys(("update", "delete", "merge", "truncate"), _ROWS_STAY),
    **dict.fromkeys(("pause", "resume", "suspend"), _NO_PAUSE),
    **dict.fromkeys(("create", "drop", "show", "describe", "desc", "explain", "attach", "detach", "stop", "usage"), _SHELL),
    "alter": "a stream keeps its columns: drop it and create it anew, or create a view of it",
    "replace": "CREATE OR REPLACE VIEW name AS SELECT ..., in sbon sql",
}
"""Statements of other databases and of the shell by their first words, and what to do instead."""


def meant(word: str) -> str:
    """Return the SQL word that resembles this word. Empty if it is an SQL word itself, or resembles none."""
    lower = word.lower()
    if lower in _WORDS or lower in _NEVER:
        return ""
    near = difflib.get_close_matches(lower, _WORDS, n=1, cutoff=_ALIKE)
    return near[0].upper() if near else ""


def explained(error: SbonError, clean: str, tokens: Sequence[Token], start: int) -> SbonError:
    """Return a clearer error for a parser that stopped at ``start``. The wrong word is there, or before it."""
    at = next((number for number, token in enumerate(tokens) if token.start >= start), len(tokens))
    for number in (at, at - 1, at - 2):
        if 0 < number < len(tokens) and tokens[number].kind == "word" and (word := meant(tokens[number].text)):
            return misspelt(clean, tokens[number], word)
    words = [token.text.lower() for token in tokens[max(0, at - 2) : at + 1]]
    for near_word in (*words, "".join(words[:2])):
        if near_word in _OPERATORS:
            return SbonError(error.code, error.message, where=error.where, hint=_OPERATORS[near_word])
    return error


def misspelt(clean: str, token: Token, word: str) -> SbonError:
    return refusal("bad-sql", "not understood", clean, token.start, offending=token.text, hint=f"did you mean {word}?")


def instead_of(clean: str, tokens: Sequence[Token], word: str) -> SbonError | None:
    """Return the error for a missing word, if another word may stand for it."""
    first_token = next((token for token in tokens if token.kind == "word" and meant(token.text) == word), None)
    return misspelt(clean, first_token, word) if first_token is not None else None


# -- Spark's spelling for other dialects -------------------------------------------------------------------------------

_STRUCTS = ("struct", "named_struct")
_QUANTIFIERS = ("any", "some", "all")


def respell(clean: str, tree: exp.Expr) -> None:
    """Respell a tree in place, innermost first. Raises :class:`SbonError` if Spark has no equivalent."""
    for node in reversed(list(tree.walk(bfs=False))):
        match node:
            case exp.Bracket():
                new = _array(node)
            case exp.EQ():
                new = _member(node)
            case exp.Dot():
                new = _field(clean, node)
            case _:
                new = node
        if new is not node:
            node.replace(new)
    for comparison in tree.find_all(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE):
        if call_name(comparison.expression) in _QUANTIFIERS and isinstance(comparison.expression, exp.Anonymous):
            hint = "list the values: IN (1, 2), or = ANY (array(1, 2)); or join with a sub-query"
            raise error_at("unsupported-expression", "ALL and ANY are not supported here", clean, comparison, hint=hint)


def _array(node: exp.Bracket) -> exp.Expr:
    """Rewrite ``ARRAY[1, 2]`` as ``array(1, 2)``; no column is an array."""
    base = node.this
    bare = isinstance(base, exp.Column) and not base.table and base.name.lower() == "array" and not base.this.args.get("quoted")
    return exp.Anonymous(this="array", expressions=node.expressions) if bare else node


def _member(node: exp.EQ) -> exp.Expr:
    """Rewrite ``x = ANY (array(1, 2))`` as ``x IN (1, 2)``."""
    call = node.expression
    if call_name(call) not in ("any", "some") or len(call.expressions) != 1:
        return node
    array = call.expressions[0].unnest()
    if call_name(array) != "array" or not array.expressions:
        return node
    return exp.In(this=node.this, expressions=array.expressions)


def _field(clean: str, node: exp.Dot) -> exp.Expr:
    """Rewrite ``struct(a, b).b`` as ``b``. A struct's fields are known where it is made, and no column is a struct."""
    struct, field = node.this.unnest(), node.expression
    if not isinstance(field, exp.Identifier | exp.Column | exp.Var):
        return node
    if call_name(struct) not in _STRUCTS:
        hint = "name a column, or take the field of struct(...) where it is made"
        raise error_at("unsupported-expression", "only struct(...) has fields", clean, node, hint=hint)
    fields = _fields(struct)
    values = [value for name, value in fields if name.lower() == field.name.lower()]
    if len(values) != 1:
        known = ", ".join(name for name, _ in fields)
        problem = "two fields of that name" if values else "no such field"
        raise error_at("unknown-field", f"the struct has {problem}: {field.name}", clean, node, hint=f"it has {known}")
    return exp.Paren(this=values[0])


def _fields(struct: exp.Expr) -> list[tuple[str, exp.Expr]]:
    """Return names and values; unnamed values are ``col1``, ``col2`` and so on, as in Spark."""
    values = struct.expressions
    if call_name(struct) == "named_struct":
        return [(name.name, value) for name, value in zip(values[::2], values[1::2], strict=False)]
    return [
        (value.alias, value.this)
        if isinstance(value, exp.Alias)
        else (value.name if isinstance(value, exp.Column) else f"col{at}", value)
        for at, value in enumerate(values, 1)
    ]
