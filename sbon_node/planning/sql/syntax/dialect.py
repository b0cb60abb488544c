"""Spark SQL dialect that keeps each function under the name that the user wrote.

sqlglot's own Spark dialect turns functions into expression classes and prints some differently (``to_timestamp(x)`` becomes a
cast). Here only operators, CASE, CAST, EXTRACT and TRIM have classes: any other call is an ``Anonymous`` with its name, so that
the allow-list can check the name and Spark gets the text as written.
"""

import logging
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser

from sbon_node.planning.sql.checks.functions import UNIT_FIRST, UNITS
from sbon_node.planning.sql.syntax.lexical import refusal, words
from sbon_protocol.errors import SbonError

_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
STATEMENT_WORDS = words(_WORDS["statements"])
"""Words that no fragment needs outside quotes. Refusing them is a second defence, should the parser misread a text."""
KEYWORDS = STATEMENT_WORDS | words(_WORDS["others"])
"""Words that must be quoted as names in a fragment."""

TYPE_HINT = "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp"

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*\Z")


def _arguments_with(*keywords: str) -> Callable[[SparkParser], exp.Expr]:
    """Return a parser for arguments such as ``substring(a FROM 1 FOR 2)``; keywords act as commas."""

    def arguments(parser: SparkParser) -> exp.Expr:
        name = parser._tokens[parser._index - 2].text
        expressions = parser._parse_csv(parser._parse_lambda)
        for keyword in keywords:
            if parser._match_text_seq(keyword) and (argument := parser._parse_lambda()) is not None:
                expressions.append(argument)
        return exp.Anonymous(this=name, expressions=expressions)

    return arguments


class VerbatimSpark(Spark):
    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}  # noqa: RUF012

    class Parser(SparkParser):
        FUNCTIONS = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            **{name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM")},
            "SUBSTRING": _arguments_with("FROM", "FOR"),
            "SUBSTR": _arguments_with("FROM", "FOR"),
            "OVERLAY": _arguments_with("PLACING", "FROM", "FOR"),
        }
        ARRAY_CONSTRUCTORS = {}  # noqa: RUF012 - array(1, 2)[0] is an element, not an array
        NO_PAREN_FUNCTION_PARSERS = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}  # noqa: RUF012


_DIALECT = VerbatimSpark()


def parse(clean: str) -> list[exp.Expr]:
    """Parse a text cleaned by :func:`sbon_node.planning.sql.syntax.lexical.scan` into statements.

    Raises :class:`SbonError` ``bad-sql``.
    """
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
        message = str(first.get("description") or error).rstrip(".")
        message = re.sub(r" but got <Token.*", "", message)
        for pattern, plain in _PLAIN_WORDINGS:
            message = re.sub(pattern, plain, message)
        if " missing after" in message and _is_ahead(clean, start, first.get("highlight") or ""):
            message = message.replace("missing after", "missing before")
        hint = TYPE_HINT if "no type" in message else "write SELECT expressions FROM stream WHERE condition"
        raise refusal("bad-sql", message, clean, start, offending=first.get("highlight") or "", hint=hint) from None
    except TokenError as error:
        raise refusal("bad-sql", str(error), clean, 0) from None
    except RecursionError:
        raise refusal("too-deep", "the expression is nested too deeply", clean, 0, hint="simplify it") from None
    finally:
        noise.setLevel(level)


_PLAIN_WORDINGS = (
    (r"Required keyword: '\w+' missing for .*", "something is missing after"),
    (r"Expecting \)", "a closing bracket is missing after"),
    (r"Expected (\w+) after CASE", r"\1 is missing after"),
    (r"Expected table name.*", "the name of a stream is missing after"),
    (r"Expected TYPE after CAST", "no type"),
    (r"Invalid expression / Unexpected token", "not understood from here on"),
)
"""Maps the parser's messages to plainer ones."""


def _is_ahead(text: str, start: int, highlight: str) -> bool:
    """Return whether the parser stopped after the gap. It reports the token before the gap only at the end of the text."""
    return highlight.lower() in (")", "]", "end") or bool(text[start + len(highlight) :].strip(" \t\r\n;"))


def call_name(node: exp.Expr) -> str:
    """Return a function call's lower-case name as Spark looks it up, or an empty text.

    Quoted names never match an allowed function.
    """
    return node.this.lower() if isinstance(node, exp.Anonymous) and isinstance(node.this, str) else ""


def _take_unit(call: exp.Anonymous) -> None:
    """Convert the unit of ``timestampdiff(HOUR, a, b)`` from a column to a word."""
    if call_name(call) in UNIT_FIRST and len(call.expressions) == 3:
        unit = call.expressions[0]
        if isinstance(unit, exp.Column) and not unit.table and unit.name.lower() in UNITS:
            unit.replace(exp.Var(this=unit.name.upper()))


def _take_place(call: exp.Anonymous) -> None:
    """Convert ``position(a IN b)`` to ``position(a, b)``, which is no condition."""
    argument = call.expressions[0] if call_name(call) == "position" and len(call.expressions) == 1 else None
    if isinstance(argument, exp.In) and argument.args.get("field"):
        call.set("expressions", [argument.this, argument.args["field"]])


def render(tree: exp.Expr) -> str:
    """Return a tree's text in one line; keywords and unusual names are quoted."""
    copy = tree.copy()
    for identifier in copy.find_all(exp.Identifier):
        name = str(identifier.this)
        identifier.set("quoted", name in KEYWORDS or not _PLAIN.match(name))
    return copy.sql(dialect=_DIALECT, comments=False, normalize_functions=False)


def start_of(node: exp.Expr, default: int = 0) -> int:
    """Return the approximate offset of a node: that of its first name or literal."""
    starts = [int(part.meta["start"]) for part in node.walk() if "start" in part.meta]
    if starts:
        return min(starts)
    return start_of(node.parent, default) if isinstance(node.parent, exp.Expr) else default


def error_at(code: str, message: str, text: str, node: exp.Expr, *, hint: str = "") -> SbonError:
    """Return an error for a node, with its place and text."""
    written = render(node)
    return refusal(code, message, text, begin_of(text, node), offending=written, hint=hint)


def begin_of(text: str, node: exp.Expr) -> int:
    """Return the offset of a node.

    The parser reports the places of names and literals; earlier text is searched for the node's first word.
    """
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
"""Text allowed between an expression's first word and its first name."""


def _offset(text: str, line: int, column: int, highlight: str) -> int:
    """Return an offset; sqlglot reports the column of a token's last character."""
    lines = text.split("\n")
    before = sum(len(line_text) + 1 for line_text in lines[: line - 1])
    end = min(before + column, len(text))
    start = end - len(highlight)
    return start if start >= 0 and text[start:end] == highlight else max(0, min(end, len(text)) - 1)
