"""Spark's SQL with every function kept by the name the user wrote.

sqlglot's own Spark dialect turns functions into expression classes of its own and prints some differently (``to_timestamp(x)``
becomes a cast). Here only operators, CASE, CAST, EXTRACT and TRIM have classes: any other call is an ``Anonymous`` with its
name, so that the name can be checked against a list and the text that Spark gets is the text that was written.
"""

from __future__ import annotations

import logging
import re

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser

from sbon_node.errors import SbonError
from sbon_node.query.functions import UNIT_FIRST, UNITS
from sbon_node.query.lexical import refusal, words

STATEMENT_WORDS = words(
    """using union intersect except minus table values lateral with execute immediate view pivot unpivot tablesample
    over partition cluster distribute sort order having qualify limit offset fetch into insert overwrite create drop alter
    set reset add jar file archive refresh cache uncache merge update delete truncate explain describe show use call declare
    transform reduce watermark recursive natural cross explode stack inline posexplode range materialized"""
)
"""Words no fragment needs outside of quotes: a second lock, should a text have been misread."""

KEYWORDS = STATEMENT_WORDS | words(
    """full group join window
    all and any anti array as asc at between both by case cast class cluster cross cube current_date current_time
    current_timestamp current_user date desc distinct distribute div else end escape except exists explode extract false filter
    for from full group grouping having if ilike in inner insert intersect interval into is join lateral leading left like limit
    map minus natural not null of offset on or order outer over partition pivot qualify range recursive reduce regexp right rlike
    rollup rows select semi session_user set sets some sort struct table tablesample then time timestamp to trailing transform
    trim true try_cast union unique unknown unpivot user using values view watermark when where window with within
    year month day hour minute second week quarter"""
)
"""Words that a name in a fragment is quoted for."""

TYPE_HINT = "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp"

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*\Z")


class VerbatimSpark(Spark):
    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}  # noqa: RUF012

    class Parser(SparkParser):
        FUNCTIONS = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parser
            for name, parser in SparkParser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM")
        }
        NO_PAREN_FUNCTION_PARSERS = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}  # noqa: RUF012


_DIALECT = VerbatimSpark()


def parse(clean: str) -> list[exp.Expr]:
    """The statements of a text that :func:`sbon_node.query.lexical.scan` has cleaned; :class:`SbonError` ``bad-sql``."""
    noise = logging.getLogger("sqlglot")
    level = noise.level
    noise.setLevel(logging.ERROR)
    try:
        statements = [statement for statement in sqlglot.parse(clean, dialect=_DIALECT) if statement is not None]
        for call in (call for statement in statements for call in statement.find_all(exp.Anonymous)):
            _take_unit(call)
            _take_place(call)
        return statements
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        start = _offset(clean, first.get("line") or 1, first.get("col") or 1, first.get("highlight") or "")
        said = str(first.get("description") or error).rstrip(".")
        said = re.sub(r" but got <Token.*", "", said)
        for pattern, plain in _SAID:
            said = re.sub(pattern, plain, said)
        if " missing after" in said and _is_ahead(clean, start, first.get("highlight") or ""):
            said = said.replace("missing after", "missing before")
        hint = TYPE_HINT if "no type" in said else "write SELECT expressions FROM stream WHERE condition"
        raise refusal("bad-sql", said, clean, start, offending=first.get("highlight") or "", hint=hint) from None
    except TokenError as error:
        raise refusal("bad-sql", str(error), clean, 0) from None
    except RecursionError:
        raise refusal("too-deep", "the expression is nested too deeply", clean, 0, hint="simplify it") from None
    finally:
        noise.setLevel(level)


_SAID = (
    (r"Required keyword: '\w+' missing for .*", "something is missing after"),
    (r"Expecting \)", "a closing bracket is missing before"),
    (r"Expected table name.*", "the name of a stream is missing after"),
    (r"Expected TYPE after CAST", "no type"),
    (r"Invalid expression / Unexpected token", "not understood from here on"),
)
"""What the parser says, in other words."""


def _is_ahead(text: str, start: int, highlight: str) -> bool:
    """Whether the parser stopped at what follows the gap: it tells of what is before the gap only where the text ends there."""
    return highlight.lower() in (")", "]", "end") or bool(text[start + len(highlight) :].strip(" \t\r\n;"))


def call_name(node: exp.Expr) -> str:
    """The lower-case name of a function call as Spark looks it up, or nothing; a quoted name is none of a function we allow."""
    return node.this.lower() if isinstance(node, exp.Anonymous) and isinstance(node.this, str) else ""


def _take_unit(call: exp.Anonymous) -> None:
    """The unit of ``timestampdiff(HOUR, a, b)`` is a word, not a column."""
    if call_name(call) in UNIT_FIRST and len(call.expressions) == 3:
        unit = call.expressions[0]
        if isinstance(unit, exp.Column) and not unit.table and unit.name.lower() in UNITS:
            unit.replace(exp.Var(this=unit.name.upper()))


def _take_place(call: exp.Anonymous) -> None:
    """``position(a IN b)`` is ``position(a, b)``, and no question."""
    asked = call.expressions[0] if call_name(call) == "position" and len(call.expressions) == 1 else None
    if isinstance(asked, exp.In) and asked.args.get("field"):
        call.set("expressions", [asked.this, asked.args["field"]])


def render(tree: exp.Expr) -> str:
    """The text of a tree, in one line; names are quoted where they are keywords or not plain."""
    copy = tree.copy()
    for identifier in copy.find_all(exp.Identifier):
        name = str(identifier.this)
        identifier.set("quoted", name in KEYWORDS or not _PLAIN.match(name))
    return copy.sql(dialect=_DIALECT, comments=False, normalize_functions=False)


def start_of(node: exp.Expr, default: int = 0) -> int:
    """Offset at which the text of a node begins, as near as the parser tells: the first name or literal inside it."""
    starts = [int(part.meta["start"]) for part in node.walk() if "start" in part.meta]
    if starts:
        return min(starts)
    return start_of(node.parent, default) if isinstance(node.parent, exp.Expr) else default


def error_at(code: str, message: str, text: str, node: exp.Expr, *, hint: str = "") -> SbonError:
    """A refusal of a node, with its place and text."""
    written = render(node)
    return refusal(code, message, text, begin_of(text, node), offending=written, hint=hint)


def begin_of(text: str, node: exp.Expr) -> int:
    """Where a node begins. The parser tells the places of names and literals; what stands before the first of them is looked
    for by its first word."""
    start = start_of(node)
    if isinstance(node, exp.Subquery):
        opened = [match.start() for match in re.finditer(r"\(\s*(?:select\b|with\b|\()", text[:start], re.IGNORECASE)]
        return opened[-1] if opened else start
    word = re.match(r"\w+|:\w+|.", render(node))
    if word is None:
        return start
    if not any("start" in part.meta for part in node.walk()):
        at = re.search(re.escape(word[0]), text, re.IGNORECASE)
        return at.start() if at else start
    if isinstance(node, exp.Column | exp.Anonymous | exp.Literal):
        return start
    before = re.search(rf"(?<!\w){re.escape(word[0])}{_BETWEEN}\Z", text[:start], re.IGNORECASE)
    return before.start() if before else start


_BETWEEN = r"(?:[\s(]|\b(?:not|exists|select|distinct|when|sets)\b)*"
"""What may stand between the first word of an expression and its first name."""


def _offset(text: str, line: int, column: int, highlight: str) -> int:
    """sqlglot tells the column of a token's last character."""
    lines = text.split("\n")
    before = sum(len(one) + 1 for one in lines[: line - 1])
    end = min(before + column, len(text))
    start = end - len(highlight)
    return start if start >= 0 and text[start:end] == highlight else max(0, min(end, len(text)) - 1)
