"""Allow-list of fragments: exactly one SELECT of listed functions over listed views (docs/design.md, section 6).

The submitting node checks its own fragments, and every host checks again, since peers are not trusted. The check asks only which
constructs are allowed, and refuses all others.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlglot import exp

from sbon_node.planning.sql.checks import functions
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.syntax.dialect import STATEMENT_WORDS, TYPE_HINT, begin_of, call_name, error_at
from sbon_node.planning.sql.syntax.lexical import Token, refusal, scan
from sbon_node.planning.sql.syntax.shape import check_clauses, check_relation, one_query
from sbon_protocol.errors import SbonError

MAX_NUMBER = 40

_NODES: frozenset[type[exp.Expr]] = frozenset((
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.And, exp.Or, exp.Not, exp.Paren,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.In, exp.Between,
    exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.DPipe,
    exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot,
    exp.Case, exp.If, exp.Bracket, exp.Trim, exp.Alias,
    exp.Column, exp.Identifier, exp.Literal, exp.HexString, exp.RawString, exp.Boolean, exp.Null,
    exp.Interval, exp.IntervalSpan, exp.Extract, exp.Var, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam,
    exp.Anonymous,
))  # fmt: skip

_TYPES = frozenset(
    getattr(exp.DType, name)
    for name in ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "TEXT", "BINARY", "DATE")
) | {exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMP}
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\Z")


def check_fragment(sql: str, inputs: int, settings: QuerySettings | None = None) -> None:
    """Raise :class:`SbonError` unless ``sql`` is a single allowed query.

    It may read only the views ``in0`` .. ``in<inputs-1>`` and use only allowed constructs.
    """
    settings = settings or QuerySettings()
    clean, tokens = scan(sql, strict=True, max_brackets=settings.max_brackets)
    check_words(clean, tokens)
    statement = one_query(clean, tokens, settings.max_depth)
    growth = Growth(clean, settings.max_growth)
    _Fragment(clean, tokens, {f"in{number}" for number in range(inputs)}, growth).check_select(statement)


def check_words(text: str, tokens: list[Token]) -> None:
    """Refuse bare words in a fragment that belong to other statements."""
    for token in tokens:
        if token.kind == "word" and token.text.lower() in STATEMENT_WORDS:
            hint = f"a column of this name is written `{token.text}`"
            raise refusal("forbidden-word", "not allowed in a fragment", text, token.start, offending=token.text, hint=hint)


class _Fragment:
    """The SELECTs of a fragment: each reads an input or another SELECT, or joins two."""

    def __init__(self, clean: str, tokens: list[Token], views: set[str], growth: Growth) -> None:
        self._clean, self._tokens, self._views, self._growth = clean, tokens, views, growth

    def check_select(self, select: exp.Expr) -> Sizes:
        """Check a SELECT; return the growth bounds of its columns."""
        clean = self._clean
        if not isinstance(select, exp.Select) or select.args.get("with_") or select.args.get("distinct"):
            raise error_at("forbidden-sql", "a fragment is made of plain SELECTs", clean, select)
        check_clauses(clean, select, self._tokens)
        joins = select.args.get("joins") or []
        source = select.args.get("from_")
        if source is None:
            raise refusal("unsupported-no-from", "there is no FROM", clean, 0, offending=clean)
        relations = [source.this, *(join.this for join in joins)]
        sizes: dict[str, int] = {}
        for relation in relations:
            for name, size in self._check_relation(relation).items():
                sizes[name] = max(size, sizes.get(name, 1))
        known = {relation.alias_or_name.lower() for relation in relations} | set(functions.WINDOW_COLUMNS)
        for join in joins:
            self._check_join(join)
        group = select.args.get("group")
        if group is not None and any(value for name, value in group.args.items() if name != "expressions"):
            raise error_at("unsupported-group-by", "keys only", clean, group)
        if not select.expressions:
            raise refusal("bad-sql", "nothing is selected", clean, 0, offending=clean)
        where = select.args.get("where")
        scalars = [*(join.args["on"] for join in joins), *([where.this] if where else [])]
        grouped = [*select.expressions, *(group.expressions if group is not None else [])]
        for root in (*scalars, *grouped):
            self._check_columns(root, known)
        for root in scalars:
            check_scalar(clean, root)
        for root in grouped:
            self._check_output(root, grouped=group is not None)
        for root in (*scalars, *(group.expressions if group is not None else [])):
            self._growth.of(root, sizes)
        return self._growth.of_row(select.expressions, sizes)

    def _check_relation(self, relation: exp.Expr) -> Sizes:
        check_relation(self._clean, relation)
        if isinstance(relation, exp.Subquery):
            return self.check_select(relation.this)
        if relation.name not in self._views:
            hint = f"the fragment's views are {', '.join(sorted(self._views))}"
            raise error_at("forbidden-relation", "a fragment reads its inputs only", self._clean, relation, hint=hint)
        return {}

    def _check_join(self, join: exp.Join) -> None:
        extra = [name for name, value in join.args.items() if value and name not in ("this", "on", "side", "kind")]
        condition = join.args.get("on")
        is_equal = condition is not None and condition.find(exp.EQ) is not None
        if extra or not is_equal or join.kind.upper() not in ("", "INNER", "OUTER", "SEMI"):
            raise error_at("forbidden-sql", "a join has a side and something that is equal", self._clean, join.this)

    def _check_columns(self, root: exp.Expr, known: set[str]) -> None:
        for reference in root.find_all(exp.Column):
            if (reference.table and reference.table.lower() not in known) or reference.args.get("db"):
                hint = "write the column's name alone"
                raise error_at("forbidden-variable", "neither an input nor its column", self._clean, reference, hint=hint)

    def _check_output(self, root: exp.Expr, *, grouped: bool) -> None:
        """Check an output expression. A grouped SELECT may also use an aggregate, or a window to group by."""
        bare = root.unalias()
        if isinstance(bare, exp.Star) and not any(bare.args.values()):
            return
        if isinstance(bare, exp.Column) and isinstance(bare.this, exp.Star):
            return
        name = call_name(bare)
        if grouped and name in (*functions.ALLOWED_AGGREGATES, *functions.SKETCH_AGGREGATES, *functions.WINDOW_COLUMNS):
            for argument in bare.expressions:
                if not isinstance(argument, exp.Star):
                    check_scalar(self._clean, argument)
        else:
            check_scalar(self._clean, bare)


def check_scalar(clean: str, node: exp.Expr, growth: int = 0) -> None:
    """Raise :class:`SbonError` unless all parts of an expression over a row are allowed.

    ``growth`` is the number of functions around it that make values longer.
    """
    if type(node) not in _NODES:
        raise _refused_node(clean, node)
    if isinstance(node, exp.Anonymous):
        name = _check_function(clean, node)
        growth += name in functions.GROWING
        if growth > functions.MAX_GROWTH:
            message = f"more than {functions.MAX_GROWTH} functions inside one another that make values longer"
            raise error_at("unbounded-function", message, clean, node)
    _check_special(clean, node)
    for child in node.iter_expressions():
        check_scalar(clean, child, growth)


def _check_special(clean: str, node: exp.Expr) -> None:
    if type(node) is exp.DataType:
        bounded = all(isinstance(parameter, exp.DataTypeParam) for parameter in node.expressions) and (
            node.this == exp.DType.DECIMAL or not node.expressions
        )
        if (
            node.this not in _TYPES
            or not bounded
            or any(v for k, v in node.args.items() if k not in ("this", "expressions", "nested"))
        ):
            raise error_at("unsupported-type", "this type is not supported", clean, node, hint=TYPE_HINT)
    elif isinstance(node, exp.Literal) and not node.is_string and not _NUMBER.match(node.name):
        raise error_at("bad-sql", "not a number", clean, node)
    elif isinstance(node, exp.Literal) and not node.is_string and len(node.name) > MAX_NUMBER:
        raise error_at("bad-sql", f"a number has at most {MAX_NUMBER} characters", clean, node)
    elif isinstance(node, exp.Column) and (
        isinstance(node.this, exp.Star) or (node.args.get("db") and node.table.lower() not in functions.WINDOW_COLUMNS)
    ):
        raise error_at("unsupported-expression", "not supported here", clean, node, hint="name a column")
    elif isinstance(node, exp.In) and (node.args.get("query") or node.args.get("unnest") or node.args.get("field")):
        hint = "a condition of WHERE, or a list of values"
        raise error_at("unsupported-subquery", "IN (SELECT ...) has no place here", clean, node, hint=hint)
    elif isinstance(node, exp.Var) and not isinstance(node.parent, exp.Interval | exp.IntervalSpan | exp.Extract | exp.Anonymous):
        raise error_at("unsupported-expression", "not supported", clean, node)
    elif isinstance(node, exp.Alias) and not isinstance(node.parent, exp.Select):
        raise error_at("unsupported-expression", "an alias has no place here", clean, node)
    elif isinstance(node, exp.Is) and not isinstance(node.expression, exp.Null | exp.Boolean):
        raise error_at("unsupported-expression", "IS takes NULL, TRUE or FALSE", clean, node)
    elif isinstance(node, exp.RegexpLike):
        _check_pattern(clean, node.expression)
    elif isinstance(node, exp.Trim) and (node.args.get("collation") or not isinstance(node.this, exp.Expr)):
        raise error_at("unsupported-expression", "not supported", clean, node)


def _check_function(clean: str, node: exp.Anonymous) -> str:
    name = call_name(node)
    if not name:
        raise error_at("forbidden-function", "a function's name is not quoted", clean, node, hint="remove the quotes")
    if name not in functions.ALLOWED:
        code, message, hint = functions.refusal_of(name)
        raise error_at(code, message, clean, node, hint=hint)
    arguments = node.expressions
    if len(arguments) < functions.MIN_ARGUMENTS.get(name, 0):
        raise error_at("not-repeatable", f"{name} without arguments reads the clock", clean, node, hint="pass it a column")
    _check_literal(clean, node, name)
    if name in functions.PATTERNS and len(arguments) > functions.PATTERNS[name]:
        _check_pattern(clean, arguments[functions.PATTERNS[name]])
    if any(isinstance(argument, exp.Var) for argument in arguments[1:]) or (
        arguments
        and isinstance(arguments[0], exp.Var)
        and (name not in functions.UNIT_FIRST or arguments[0].name.lower() not in functions.UNITS)
    ):
        raise error_at("unsupported-expression", "not supported", clean, node)
    return name


def _check_pattern(clean: str, node: exp.Expr) -> None:
    if isinstance(node, exp.Null):
        return
    if not (isinstance(node, exp.RawString) or (isinstance(node, exp.Literal) and node.is_string)):
        raise error_at(functions.BAD_PATTERN, functions.NO_LITERAL, clean, node, hint="write it between quotes")
    if fault := functions.fault_of(node.name):
        raise error_at(functions.BAD_PATTERN, fault, clean, node, hint=functions.PATTERN_HINT)


def _check_literal(clean: str, node: exp.Anonymous, name: str) -> None:
    """Check the argument that must be a small number, or a short text, so that a row stays small."""
    position, most = (functions.LITERAL_BOUNDS | functions.LITERAL_TEXTS).get(name, (len(node.expressions), 0))
    if len(node.expressions) <= position:
        return
    argument = node.expressions[position]
    if name in functions.LITERAL_TEXTS:
        hint = f"write a literal of at most {most} characters"
        is_small = isinstance(argument, exp.Literal | exp.Null) and len(argument.name) <= most
    else:
        hint = f"write a literal number of at most {most}"
        is_number = isinstance(argument, exp.Literal) and not argument.is_string and argument.name.isdigit()
        is_small = is_number and int(argument.name) <= most
    if not is_small:
        message = f"argument {position + 1} of {name} may make values of any size"
        raise error_at("unbounded-function", message, clean, node, hint=hint)


_REFUSED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["refused"]


def _refused_node(clean: str, node: exp.Expr) -> Exception:
    for refused in _REFUSED:
        if isinstance(node, tuple(getattr(exp, name) for name in refused["classes"].split())):
            return error_at(refused["code"], refused["message"], clean, node, hint=refused["hint"])
    hint = "write it with arithmetic, comparisons, CASE, CAST, LIKE, IN, BETWEEN, IS NULL or a function"
    return error_at("unsupported-expression", "this expression is not supported", clean, node, hint=hint)


# -- Bounds on how much expressions may lengthen values; nested literal bounds multiply --------------------------------

Sizes = Mapping[str, int]
"""Growth factors by lower-case column name. A factor is relative to the longest value of an input; missing columns count as 1."""

_JOINING = frozenset({"concat", "concat_ws", "array", "array_join", "overlay"})
"""Functions whose result is as long as all arguments together."""
_TIMES = {"hex": 2, "bin": 2, "base64": 2, "url_encode": 3}
_TRUTH = (exp.Predicate, exp.Not, exp.Connector)


class Growth:
    """Checks expressions over a row. ``most`` limits intermediate values and the total growth of the row."""

    def __init__(self, clean: str, most: int) -> None:
        self._clean, self._most = clean, most

    def of_row(self, outputs: Sequence[exp.Expr], sizes: Sizes) -> dict[str, int]:
        """Return the growth factors of a SELECT's columns. Raises :class:`SbonError` ``unbounded-function``."""
        sizes_of_row: dict[str, int] = {}
        gained = 0
        for output in outputs:
            if isinstance(output, exp.Star) or (isinstance(output.unalias(), exp.Column) and output.unalias().is_star):
                sizes_of_row.update(sizes)
                continue
            size = self.of(output.unalias(), sizes)
            gained += size - 1
            if gained > self._most:
                raise self._refused(f"a row may become more than {self._most} times as long", output)
            sizes_of_row[output.alias_or_name.lower()] = size
        return sizes_of_row

    def of(self, node: exp.Expr, sizes: Sizes) -> int:
        """Return the growth factor of an expression.

        Raises :class:`SbonError` ``unbounded-function`` for the innermost part that is too long.
        """
        if isinstance(node, exp.Column):
            return sizes.get(node.name.lower(), 1)
        terms = list(node.flatten()) if isinstance(node, exp.Connector) else list(node.iter_expressions())
        inner = [self.of(term, sizes) for term in terms]
        if isinstance(node, _TRUTH):
            return 1
        size = _size(node, inner)
        if size > self._most:
            raise self._refused(f"this may become more than {self._most} times as long as a value", node)
        return size

    def _refused(self, message: str, node: exp.Expr) -> SbonError:
        """Return an error without the text; the planner adds the user's text."""
        return refusal("unbounded-function", message, self._clean, begin_of(self._clean, node), offending="", hint=_HINT)


_HINT = "nest fewer functions that make values longer, or give them smaller numbers"


def _size(node: exp.Expr, inner: Sequence[int]) -> int:
    if isinstance(node, exp.DPipe):
        return sum(inner)
    if not isinstance(node, exp.Anonymous):
        return max(inner, default=1)
    name, first = call_name(node), inner[0] if inner else 1
    if name in _JOINING:
        return max(1, sum(inner)) * (len(inner) if name == "array_join" else 1)
    if name in _TIMES:
        return _TIMES[name] * first
    if name in ("lpad", "rpad"):  # They add at most a literal number of characters, which counts as one value more.
        return first + 1
    if name not in ("repeat", "replace", "regexp_replace"):
        return max(inner, default=1)
    position, _ = (functions.LITERAL_BOUNDS | functions.LITERAL_TEXTS)[name]
    literal = node.expressions[position].name if len(node.expressions) > position else ""  # Spark refuses a missing one.
    # A replacement may come in place of each character, and of an empty match before it.
    return first * (max(1, int(literal or 1)) if name == "repeat" else 1 + len(literal))
