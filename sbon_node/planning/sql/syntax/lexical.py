"""Scanner for Spark's lexical rules, run before any parser.

sqlglot and Spark disagree about comments (Spark's ``--`` continues after a back-slash at the end of the line) and about doubled
quotes, and Spark replaces ``${...}`` by settings and environment variables even inside strings. The scanner refuses or blanks out
text that two parsers could read differently, so that Spark runs the same text that was checked.
"""

import itertools
import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from sbon_protocol.errors import SbonError

MAX_FRAGMENT = 65_536
MAX_BRACKETS = 32
MAX_TOKENS = 6_000
SHOWN = 60

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*)|(?P<string>[rR]?['"])|(?P<quoted>`)|(?P<word>\w+)|(?P<space>\s+)|(?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
_STRANGE = re.compile(r"[^\x20-\x7e\t\r\n]")
_IN_FRAGMENT = frozenset("()[].,+-*/%=<>!&|^~")


@dataclass(frozen=True, slots=True)
class Token:
    """A token. ``text`` is as written, with its quotes; ``start`` counts from 0."""

    kind: Literal["word", "string", "quoted", "symbol"]
    text: str
    start: int


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


RESERVED = words(
    """alter and as between create cross current_date current_timestamp current_user describe distinct drop else except false
    fetch for from glob grant having ilike inner insert intersect into join lateral like minus not notnull null on or outer
    partitioned_by qualify regexp returning revoke rlike rollback select serdeproperties session_user tablesample then true
    uncache union using values when where with xor"""
)
"""Words that name a stream only in quotes.

The parser reads them differently after FROM, or before a dot. Other keywords may be names.
"""


def place(text: str, start: int) -> str:
    """Return ``line L, column C`` of an offset, both from 1."""
    line = text.count("\n", 0, start) + 1
    return f"line {line}, column {start - text.rfind(chr(10), 0, start)}"


def offset_of(text: str, where: str) -> int:
    """Return the offset of a place in the form of :func:`place`; 0 if it is invalid."""
    match = re.fullmatch(r"line (\d+), column (\d+)", where)
    if match is None:
        return 0
    lines = text.split("\n")
    return sum(len(line) + 1 for line in lines[: int(match[1]) - 1]) + int(match[2]) - 1


def refusal(code: str, message: str, text: str, start: int, *, hint: str = "", offending: str = "") -> SbonError:
    """Return an error that shows the offending text, cut to a line."""
    shown = " ".join(offending.split())
    shown = f"{shown[: SHOWN - 3]}..." if len(shown) > SHOWN else shown
    return SbonError(code, f"{message}: {shown}" if shown else message, where=place(text, start), hint=hint)


_CLAUSES = words("from where group having order sort limit offset union except intersect minus join left right full cross inner")


def clause(text: str, start: int) -> str:
    """Return the text from ``start`` to the next clause or closing bracket; SELECTs in full."""
    depth = 0
    nested = text[start : start + 6].lower() == "select"
    for token in scan(text, strict=False)[1]:
        if token.start < start:
            continue
        if token.kind == "symbol":
            depth += (token.text in "([") - (token.text in ")]")
        if depth < 0 or (
            depth == 0 and not nested and token.start > start and token.kind == "word" and token.text.lower() in _CLAUSES
        ):
            return text[start : token.start]
    return text[start:]


def scan(text: str, *, strict: bool, max_text: int = MAX_FRAGMENT, max_brackets: int = MAX_BRACKETS) -> tuple[str, list[Token]]:
    """Return the text with comments blanked out (offsets stay) and its tokens.

    Raises :class:`SbonError` for constructs that may hide others. ``strict`` is for fragments, which the node's own generator
    writes: no comments, only single quotes with back-slash escapes.
    """
    if len(text) > max_text:
        hint = "split the query; query.max_text sets the limit" if not strict else "split the query"
        raise refusal("query-too-long", f"{len(text)} characters, {max_text} are allowed", text, 0, hint=hint)
    if (variable := text.find("${")) >= 0:
        hint = "write concat('$', '{') where a string must hold it"
        raise refusal("forbidden-variable", "variables are not replaced", text, variable, offending=text[variable:], hint=hint)
    tokens: list[Token] = []
    clean: list[str] = []
    at = depth = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None
        kind, end = match.lastgroup, match.end()
        if kind == "comment":
            end = _comment(text, at, end, strict)
            clean.append(re.sub(r"[^\n]", " ", text[at:end]))
        else:
            if kind == "string":
                end = _string(text, at, end, strict)
            elif kind == "quoted":
                end = _quoted(text, at)
            elif kind == "symbol":
                depth = _symbol(text, at, depth, strict, max_brackets)
            elif kind == "word":
                _word(text, at, end, strict)
            if kind in ("word", "string", "quoted", "symbol"):
                tokens.append(Token(kind, text[at:end], at))  # type: ignore[arg-type]
            clean.append(text[at:end])
        at = end
        if len(tokens) > MAX_TOKENS:
            raise refusal("query-too-long", f"more than {MAX_TOKENS} words", text, at, hint="split the query")
    _check_neighbours(text, tokens, strict)
    return "".join(clean), tokens


def _comment(text: str, start: int, end: int, strict: bool) -> int:
    offending = text[start : start + 40]
    if text.startswith("/*+", start):
        hint = "placement is chosen by the query's strategy"
        raise refusal("unsupported-hint", "optimizer hints are not supported", text, start, offending=offending, hint=hint)
    if strict:
        raise refusal("forbidden-comment", "a fragment has no comments", text, start, offending=offending)
    if text.startswith("--", start):
        if text[start:end].rstrip("\r").endswith("\\"):
            message = "a comment may not end in a back-slash (Spark continues it on the next line)"
            raise refusal("forbidden-comment", message, text, start, offending=text[start:end], hint="remove the back-slash")
        return end
    depth = 1
    for bracket in re.finditer(r"/\*|\*/", text[end:]):
        depth += 1 if bracket.group() == "/*" else -1
        if depth == 0:
            return end + bracket.end()
    raise refusal("bad-sql", "the comment has no end", text, start, offending=offending, hint="close it with */")


def _string(text: str, start: int, after_quote: int, strict: bool) -> int:
    quote, raw = text[after_quote - 1], text[start] in "rR"
    offending = text[start : start + 40]
    if strict and (raw or quote == '"'):
        raise refusal("forbidden-string", "a fragment has strings in single quotes only", text, start, offending=offending)
    at = after_quote
    while at < len(text):
        if text[at] == "\\" and not raw:
            at += 2
        elif text[at] == quote:
            return at + 1
        else:
            at += 1
    raise refusal("bad-sql", "the string has no end", text, start, offending=offending, hint=f"close it with {quote}")


def _quoted(text: str, start: int) -> int:
    match = re.compile(r"`(?:[^`\n\x00-\x1f]|``)+`").match(text, start)
    if match is None:
        message, offending = "the quoted name has no end, or is empty", text[start : start + 40]
        raise refusal("bad-sql", message, text, start, offending=offending, hint="close it with `")
    return match.end()


def _word(text: str, start: int, end: int, strict: bool) -> None:
    """Check a name.

    It may have letters of any script, but not other forms of a letter, such as a full-width A, which only look like it.
    """
    strange = _STRANGE.search(text, start, end)
    if strange is not None and (strict or not unicodedata.is_normalized("NFKC", text[start:end])):
        raise _strange(text, strange.start())


def _strange(text: str, start: int) -> SbonError:
    message = f"the character {text[start]!r} has no place outside of quotes"
    return refusal("forbidden-character", message, text, start, hint="remove it")


def _symbol(text: str, start: int, depth: int, strict: bool, max_brackets: int) -> int:
    symbol = text[start]
    if _STRANGE.match(symbol) or (strict and symbol not in _IN_FRAGMENT):
        raise _strange(text, start)
    if symbol in "([":
        depth += 1
        if depth > max_brackets:
            message = f"more than {max_brackets} brackets inside one another"
            raise refusal("too-deep", message, text, start, hint="simplify the expression; query.max_brackets sets the limit")
    return depth - (symbol in ")]")


def _check_neighbours(text: str, tokens: list[Token], strict: bool) -> None:
    """Refuse adjacent strings, which Spark's versions read differently, and operators that no fragment has."""
    for left, right in itertools.pairwise(tokens):
        both, start = left.text + right.text, left.start
        if left.kind == right.kind == "string":
            hint = "write \\' for a quote inside a string, and || to join strings"
            offending = f"{left.text} {right.text}"
            raise refusal("adjacent-strings", "two strings side by side", text, right.start, offending=offending, hint=hint)
        together = right.start == start + len(left.text)
        if left.kind == "word" and right.kind == "string" and together and left.text.lower() != "x":
            raise refusal("forbidden-string", "a string with this prefix is not supported", text, start, offending=both)
        if left.text == "," and right.text.lower() in (",", ")", "]", "from"):
            message = "an expression is missing after the comma"
            raise refusal("bad-sql", message, text, start, offending=left.text, hint="remove the comma")
        if together and both in (("->", "=>", "|>", "::") if strict else ("|>",)):
            hint = "write SELECT ... FROM ... WHERE" if not strict else ""
            raise refusal("forbidden-operator", "this operator is not supported", text, start, offending=both, hint=hint)


def check_name(stream: str) -> None:
    """Raise :class:`SbonError` ``bad-name`` unless a new stream's name is usable without quotes.

    Queries read existing streams with other names in back-quotes.
    """
    if stream in RESERVED:
        message = f"{stream!r} is a word of SQL: FROM {stream} would not be understood as the stream"
        raise SbonError("bad-name", message, where="name", hint=f"choose another, {stream}_stream for instance")
