"""Actions of the shell's statements. Pure.

Statements that change streams are read with the place of each part:

CREATE STREAM [IF NOT EXISTS] name (column type, ...) EVENT TIME column [DELAY '10 seconds'] [COMMENT 'text']
CREATE STREAM [IF NOT EXISTS] name AS SELECT ...
CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name AS SELECT ...
ATTACH FILE 'path' | connector TO stream [AT node] [AS name] [WITH (option = value, ...)]
DETACH name FROM stream  |  DETACH FROM stream [AT node]
DROP STREAM [IF EXISTS] name, DROP VIEW [IF EXISTS] name
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from sbon import SbonError
from sbon.model import SourceDeclaration, StreamDeclaration, ViewDeclaration
from sbon_cli.shell.statements import blanked
from sbon_node.base.validation_messages import in_plain_words
from sbon_node.model.schema import parse_schema
from sbon_node.planning.sql.syntax.durations import parse_ms
from sbon_protocol.api.columns import fields_of

# -- Statements that change streams -----------------------------------------------------------------------------------

FORMS = {
    "create": "CREATE STREAM [IF NOT EXISTS] name (column type, ...) EVENT TIME column [DELAY '10 seconds'] [COMMENT 'text']"
    ", CREATE STREAM name AS SELECT ..., or CREATE [OR REPLACE] VIEW name AS SELECT ...",
    "attach": "ATTACH FILE 'path' | connector TO stream [AT node] [AS name] [WITH (option = value, ...)]",
    "detach": "DETACH name FROM stream, or DETACH FROM stream [AT node]",
    "drop": "DROP STREAM [IF EXISTS] name, or DROP VIEW [IF EXISTS] name",
}
CONNECTORS = ("FILE", "tail", "http", "mqtt", "generator", "hostmetrics")

D = TypeVar("D", bound=msgspec.Struct)

NAMES = "lower-case letters, digits and _ are allowed, at most 63, a letter first"

Positions = Mapping[str, str]
"""Position in the statement, ``line 1, column 15``, by field as errors name it."""

_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z0-9_][A-Za-z0-9_.-]*)|(?P<string>'(?:''|[^'])*')|(?P<quoted>`[^`]+`)|(?P<other>\S))")


class CreateStream(NamedTuple):
    """A CREATE STREAM statement; with ``if_missing``, an existing stream or view of the name stays as it is."""

    declaration: StreamDeclaration
    positions: Positions
    if_missing: bool = False

    @property
    def name(self) -> str:
        return self.declaration.name


class CreateResult(NamedTuple):
    """A stream that is the result of a query; ``sql`` is as that of a :class:`CreateView`."""

    name: str
    sql: str
    positions: Positions
    if_missing: bool = False


class CreateView(NamedTuple):
    """``view.sql`` has spaces in place of the words before it, so that lines and columns stay those of the statement."""

    view: ViewDeclaration
    positions: Positions
    if_missing: bool = False

    @property
    def name(self) -> str:
        return self.view.name


class Attach(NamedTuple):
    """An ATTACH statement; ``node`` and ``name`` are empty if not given."""

    stream: str
    connector: str
    node: str
    name: str
    options: dict[str, Any]
    positions: Positions

    def source(self, own_node: str) -> SourceDeclaration:
        """Return the declaration of the source, at ``own_node`` if no node is named."""
        node = self.node or own_node
        name = self.name or node
        return SourceDeclaration(stream=self.stream, name=name, node=node, connector=self.connector, options=self.options)


class Detach(NamedTuple):
    stream: str
    name: str
    node: str
    positions: Positions


class DropStream(NamedTuple):
    """A DROP STREAM or DROP VIEW statement: only a stream, or only a view, is dropped by it."""

    stream: str
    view: bool
    positions: Positions
    if_exists: bool = False


Creation = CreateStream | CreateResult | CreateView
Declaration = Creation | Attach | Detach | DropStream


def declaration_of(text: str) -> Declaration | None:
    """Parse a declaration; return None for other statements.

    Raises :class:`SbonError` ``bad-statement``, ``bad-schema``, ``bad-type`` with the position. ``text`` has spaces in place
    of comments.
    """
    reader = Reader(text)
    if reader.takes("create"):
        if reader.takes_all("or", "replace"):
            reader.needs("view")
            return _create_view(reader, replace=True)
        return _create_view(reader, replace=False) if reader.takes("view") else _create(reader)
    if reader.takes("attach"):
        return _attach(reader)
    if reader.takes("detach"):
        return _detach(reader)
    if reader.takes("drop"):
        view = reader.takes("view")
        if not view:
            reader.needs("stream")
        if_exists = reader.takes_all("if", "exists")
        positions = {"name": reader.position()}
        return DropStream(reader.ended(reader.name("a view" if view else "a stream")), view, positions, if_exists)
    return None


_OF_STREAM = frozenset({"stream-exists", "stream-in-use", "unknown-stream", "bad-name", "is-a-view", "not-a-view"})
_OF_SOURCE = frozenset({"ambiguous-source", "source-exists", "unknown-source"})

_POSITION = re.compile(r"line \d+, column \d+")


def with_position(error: SbonError, positions: Positions) -> SbonError:
    """Add the position of the named part to the node's error, if it is in the statement; a query's errors have theirs."""
    if _POSITION.match(error.where):
        return error
    field = error.where
    while field and field not in positions:
        field = field.rpartition(".")[0]
    if not field and error.code in _OF_STREAM:
        field = "stream" if "stream" in positions else "name"
    elif not field and error.code in _OF_SOURCE:
        field = "name"
    where = positions.get(field, error.where)
    return SbonError(error.code, error.message, where=where, hint=error.hint, details=error.details)


class Reader:
    """Reader of a statement's words, in order."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._at = 0
        self._form = FORMS.get(text.split()[0].lower(), "") if text.split() else ""

    def position(self) -> str:
        """Return the position of the next word."""
        return position_at(self.text, self._start())

    def takes(self, word: str) -> bool:
        """Whether the next word is ``word``; if so, skip it."""
        match = _TOKEN.match(self.text, self._at)
        if match is None or (match["word"] or match["other"] or "").lower() != word:
            return False
        self._at = match.end()
        return True

    def takes_all(self, *words: str) -> bool:
        """Whether these are the next words; if so, skip them. Their first one alone may be a name."""
        start = self._at
        if all(self.takes(word) for word in words):
            return True
        self._at = start
        return False

    def needs(self, *words: str) -> None:
        for word in words:
            if not self.takes(word):
                raise self.wrong(f"{word.upper()} is expected here")

    def name(self, expected: str) -> str:
        match = _TOKEN.match(self.text, self._at)
        if match is None or not (match["word"] or match["quoted"]):
            raise self.wrong(f"the name of {expected} is expected here")
        self._at = match.end()
        return match["word"] or match["quoted"].strip("`")

    def string(self, expected: str) -> str:
        match = _TOKEN.match(self.text, self._at)
        if match is None or not match["string"]:
            raise self.wrong(f"{expected} is expected here, in single quotes")
        self._at = match.end()
        return match["string"][1:-1].replace("''", "'")

    def value(self) -> Any:
        """Read a text in single quotes, or a JSON value: a number, true, false, a list, an object."""
        start = self._start()
        if self.text.startswith("'", start):
            return self.string("a value")
        lowered = re.match(r"true\b|false\b", self.text[start:], re.IGNORECASE)
        try:
            if lowered:
                self._at = start + lowered.end()
                return lowered[0].lower() == "true"
            value, self._at = json.JSONDecoder().raw_decode(self.text, start)
        except ValueError as error:
            raise self.wrong("a value is expected here: a text in single quotes, a number, true, false or JSON") from error
        return value

    def bracketed(self) -> tuple[str, int]:
        """Read the text within the brackets that come next; return it with its offset."""
        self.needs("(")
        start, depth = self._at, 1
        for bracket in re.finditer(r"[()]", self.text[start:]):
            depth += 1 if bracket[0] == "(" else -1
            if depth == 0:
                self._at = start + bracket.end()
                return self.text[start : self._at - 1], start
        raise self.wrong("a closing bracket is missing", at=start - 1)

    def rest(self, expected: str) -> str:
        """Return the rest of the text, after as many lines and columns as before it."""
        if not self.text[self._at :].strip():
            raise self.wrong(f"{expected} is expected here")
        return re.sub(r"[^\n]", " ", self.text[: self._at]) + self.text[self._at :]

    def ended(self, declaration: Any) -> Any:
        if self.text[self._at :].strip():
            raise self.wrong("nothing more is expected here")
        return declaration

    def wrong(self, message: str, at: int | None = None) -> SbonError:
        position = position_at(self.text, self._start() if at is None else at)
        return SbonError("bad-statement", message, where=position, hint=f"write {self._form}")

    def _start(self) -> int:
        rest = self.text[self._at :]
        return self._at + len(rest) - len(rest.lstrip()) if rest.strip() else len(self.text.rstrip())


def position_at(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"


def _create(reader: Reader) -> CreateStream | CreateResult:
    reader.needs("stream")
    if_missing = reader.takes_all("if", "not", "exists")
    positions = {"name": reader.position()}
    name = reader.name("the stream")
    if reader.takes("as"):
        return CreateResult(name, reader.rest("a query"), positions, if_missing)
    columns, start = reader.bracketed()
    positions["schema"] = position_at(reader.text, start)
    fields: dict[str, Any] = {"name": name, "schema": _schema(reader.text, columns, start)}
    reader.needs("event", "time")
    positions["event_time"] = reader.position()
    fields["event_time"] = reader.name("a column")
    while True:
        if "delay_ms" not in fields and reader.takes("delay"):
            fields["delay_ms"] = _delay_ms(reader, positions)
        elif "comment" not in fields and reader.takes("comment"):
            fields["comment"] = reader.string("a text")
        else:
            break
    reader.ended(None)
    return CreateStream(_checked(fields, StreamDeclaration, positions), positions, if_missing)


def _create_view(reader: Reader, *, replace: bool) -> CreateView:
    if_missing = not replace and reader.takes_all("if", "not", "exists")
    positions = {"name": reader.position()}
    name = reader.name("the view")
    reader.needs("as")
    fields = {"name": name, "sql": reader.rest("a query"), "replace": replace}
    return CreateView(_checked(fields, ViewDeclaration, positions), positions, if_missing)


def _delay_ms(reader: Reader, positions: dict[str, str]) -> int:
    """Read ``'10 seconds'``, or ``INTERVAL '10' SECONDS``."""
    positions["delay_ms"] = reader.position()
    reader.takes("interval")
    text = reader.string("a length of time")
    if text.strip().isdecimal():
        text = f"{text} {reader.name('a unit of time')}"
    delay_ms = parse_ms(text)
    if delay_ms is None:
        where = positions["delay_ms"]
        raise SbonError("bad-statement", f"{text!r} is no length of time", where=where, hint="such as '10 seconds'")
    return delay_ms


def _schema(text: str, columns: str, start: int) -> Any:
    """Parse the schema; an error names the position of its column."""
    try:
        return parse_schema(columns)
    except SbonError as error:
        numbered = re.match(r"column (\d+)", error.where)
        before = fields_of(columns)[: int(numbered[1]) - 1] if numbered else []
        at = start + sum(len(field) + 1 for field in before)
        at += len(text[at:]) - len(text[at:].lstrip())
        raise SbonError(error.code, error.message, where=position_at(text, at), hint=error.hint) from error


def _attach(reader: Reader) -> Attach:
    positions = {"connector": reader.position(), "options": reader.position()}
    options: dict[str, Any] = {}
    if reader.takes("file"):
        positions["options.path"] = reader.position()
        connector, options = "file", {"path": reader.string("the path of a file")}
    else:
        connector = reader.name("a connector").lower()
    reader.needs("to")
    positions["stream"] = positions["name"] = reader.position()
    stream = reader.name("a stream")
    node = name = ""
    while True:
        if not node and reader.takes("at"):
            positions["node"] = reader.position()
            node = reader.name("a node")
        elif not name and reader.takes("as"):
            positions["name"] = reader.position()
            name = reader.name("the source")
        else:
            break
    if reader.takes("with"):
        _options(reader, options, positions)
    reader.ended(None)
    attach = Attach(stream, connector, node, name, options, positions)
    _checked(msgspec.structs.asdict(attach.source("here")), SourceDeclaration, positions)
    return attach


def _options(reader: Reader, options: dict[str, Any], positions: dict[str, str]) -> None:
    reader.needs("(")
    while True:
        position = reader.position()
        key = reader.name("an option")
        if key in options:
            raise SbonError("bad-statement", f"{key} is given twice", where=position)
        positions[f"options.{key}"] = position
        reader.needs("=")
        options[key] = reader.value()
        if not reader.takes(","):
            break
    reader.needs(")")


def _detach(reader: Reader) -> Detach:
    positions = {"name": reader.position()}
    name = "" if reader.takes("from") else reader.name("a source")
    if name:
        reader.needs("from")
    positions["stream"] = reader.position()
    stream = reader.name("a stream")
    node = ""
    if reader.takes("at"):
        positions["node"] = reader.position()
        node = reader.name("a node")
    return reader.ended(Detach(stream, name, node, positions))  # type: ignore[no-any-return]


def _checked(fields: dict[str, Any], kind: type[D], positions: Positions) -> D:
    """Return the fields as a type of the API; an error names the position of a field that is not allowed."""
    try:
        return msgspec.convert(fields, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        field, message = in_plain_words(error, kind)
        hint = NAMES if field == "name" else ""
        raise SbonError("bad-statement", message, where=positions.get(field, field), hint=hint) from error


# -- All statements ---------------------------------------------------------------------------------------------------

HELP = (Path(__file__).parent / "help.txt").read_text(encoding="utf-8").rstrip()


class ShowQuery(NamedTuple):
    query: str


Shown = Literal["STREAMS", "QUERIES", "MEMBERS"]
SHOWN: tuple[Shown, ...] = ("STREAMS", "QUERIES", "MEMBERS")


class Run(NamedTuple):
    """Run a query with this text for the node."""

    sql: str


class Explain(NamedTuple):
    """Explain the plan or the placement of ``sql``, or of a running query."""

    sql: str
    query: str
    placement: bool


class Show(NamedTuple):
    what: Shown


class Describe(NamedTuple):
    stream: str


class ShowUsage(NamedTuple):
    query: str


class Stop(NamedTuple):
    query: str


class Help(NamedTuple):
    pass


class Quit(NamedTuple):
    pass


Action = Run | Explain | Show | ShowQuery | Describe | ShowUsage | Stop | Help | Quit | Declaration

_NAME = r"\s+([A-Za-z0-9_-]+|`[^`]+`)\s*"


def action_of(text: str) -> Action:
    """Parse a statement; raise :class:`SbonError` ``bad-statement`` if only its beginning is one of the shell.

    The text for the node has spaces in place of the preceding words, so that lines and columns stay those of ``text``.
    """
    clean = blanked(text)
    words = clean.split()
    first = words[0].lower().lstrip("\\") if words else ""
    if clean.strip().startswith("\\") or (len(words) == 1 and first in ("help", "quit", "exit")):
        return _word(first)
    if first == "explain":
        return _explain(clean)
    if (declared := declaration_of(clean)) is not None:
        return declared
    if first == "show":
        with_name = re.fullmatch(rf"\s*show\s+(stream|query){_NAME}", clean, re.IGNORECASE)
        if with_name is not None:
            return (Describe if with_name[1].lower() == "stream" else ShowQuery)(with_name[2].strip("`"))
        shown_kind = words[1].upper() if len(words) == 2 else ""
        for shown in SHOWN:
            if shown == shown_kind:
                return Show(shown)
        at = len(clean.rstrip()) if len(words) == 1 else clean.find(words[1])
        raise _bad("SHOW what?", clean, at, "SHOW STREAMS, QUERIES, MEMBERS, STREAM name or QUERY name")
    for word, kind, of in (
        ("describe", Describe, "STREAM"),
        ("desc", Describe, "STREAM"),
        ("usage", ShowUsage, "QUERY"),
        ("stop", Stop, "QUERY"),
    ):
        if first == word:
            match = re.fullmatch(rf"\s*{word}(?:\s+(?:stream|query))?{_NAME}", clean, re.IGNORECASE)
            if match is None:
                at = clean.find(words[1]) if len(words) > 1 else len(clean.rstrip())
                raise _bad(f"{word.upper()} takes one name", clean, at, f"{word.upper()} {of}")
            return kind(match[1].strip("`"))
    return Run(text)


def positions_of(action: Action, text: str) -> Positions:
    """Return the position of the name that a statement ends with, by the field under which the node knows it."""
    query = action.query if isinstance(action, Explain | ShowQuery | ShowUsage | Stop) else ""
    if not query and not isinstance(action, Describe):
        return {}
    name = re.search(r"[^\s;]+\s*\Z", blanked(text))
    assert name is not None
    return {"query" if query else "stream": position_at(text, name.start())}


def _word(word: str) -> Action:
    if word in ("q", "quit", "exit"):
        return Quit()
    if word in ("h", "help", "?"):
        return Help()
    raise SbonError("bad-statement", f"there is no \\{word}", hint="\\help lists the commands")


def _explain(clean: str) -> Action:
    match = re.match(r"\s*explain(\s+placement)?(?:\s+query" + _NAME + r"\Z)?", clean, re.IGNORECASE)
    assert match is not None
    if match[2]:
        return Explain("", match[2].strip("`"), placement=bool(match[1]))
    rest = clean[match.end() :]
    if not rest.strip():
        hint = "EXPLAIN SELECT ..., EXPLAIN PLACEMENT SELECT ... or EXPLAIN QUERY name"
        raise _bad("EXPLAIN what?", clean, len(clean.rstrip()), hint)
    return Explain(re.sub(r"[^\n]", " ", clean[: match.end()]) + rest, "", placement=bool(match[1]))


def _bad(message: str, text: str, at: int, hint: str) -> SbonError:
    return SbonError("bad-statement", message, where=position_at(text, at), hint=f"write {hint}")
