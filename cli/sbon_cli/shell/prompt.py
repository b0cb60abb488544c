"""The shell on a terminal: history, completion, statements of many lines."""

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from sbon import SbonError
from sbon.states import LIVE
from sbon_cli.client import Client
from sbon_cli.shell.actions import CONNECTORS, SHOWN
from sbon_cli.shell.run import Runner
from sbon_cli.shell.statements import Statement, blanked, complete, is_word, split
from sbon_cli.terminal.output import err
from sbon_node.model.schema import TYPES
from sbon_node.planning.sql.checks.functions import ALLOWED, ALLOWED_AGGREGATES

MAX_HISTORY_BYTES = 1024 * 1024
PROMPT, MORE = "sbon> ", "   -> "
FRESH_S, PATIENCE_S = 5.0, 1.0
"""Seconds for which names are used again, and longest wait for them."""

T = TypeVar("T")


class Known:
    """Names at the connected node for completion: asked for now and then, empty without an error if it does not answer."""

    def __init__(self, api: str) -> None:
        self._client = Client(api, patience_s=PATIENCE_S)
        self._lists: dict[str, tuple[float, list[Any]]] = {}

    def streams(self) -> Mapping[str, tuple[str, ...]]:
        """Return columns by stream."""
        declared = [info.entry.declaration for info in self._listed("streams", self._client.streams)]
        return {one.name: tuple(column.name for column in one.schema) for one in declared}

    def sources(self) -> tuple[str, ...]:
        """Return names of sources of any stream."""
        streams = self._listed("streams", self._client.streams)
        return tuple(sorted({source.name for info in streams for source in info.entry.sources}))

    def members(self) -> tuple[str, ...]:
        return tuple(member.name for member in self._listed("members", self._client.members))

    def queries(self) -> tuple[str, ...]:
        return tuple(query.id for query in self._listed("queries", self._client.queries))

    def live_queries(self) -> tuple[str, ...]:
        """Return the queries that are not over."""
        return tuple(query.id for query in self._listed("queries", self._client.queries) if query.state in LIVE)

    def forget(self) -> None:
        """Forget all names, because they may have changed."""
        self._lists.clear()

    def _listed(self, what: str, ask: Callable[[], list[T]]) -> list[T]:
        now = time.monotonic()
        asked_s, listing = self._lists.get(what, (-math.inf, []))
        if now - asked_s >= FRESH_S:
            try:
                listing = ask()
            except SbonError:
                listing = []
            self._lists[what] = now, listing
        return listing


class SqlCompleter(Completer):
    """Completer that asks the node for names; it runs beside the typing."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        statement = split(before)[1].text if before.rstrip().endswith(";") or ";" in before else before
        word = word_before(before)
        for candidate in candidates(statement, document.text, self._known):
            yield Completion(candidate, start_position=-len(word))


def history_file() -> Path:
    """Return the history file in the user's state directory (XDG)."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "sbon" / "sql_history"


def history(path: Path) -> History:
    """Return the history in a file that only the user can read; on failure one for this session, with a message."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        path.chmod(0o600)
        _shorten(path)
    except OSError as error:
        err().print(f"[yellow]no history: {path}: {error.strerror}[/]")
        return InMemoryHistory()
    return FileHistory(str(path))


def _shorten(path: Path) -> None:
    """Keep the newer half of a file that has grown too large."""
    if path.stat().st_size <= MAX_HISTORY_BYTES:
        return
    history = path.read_bytes()[-MAX_HISTORY_BYTES // 2 :]
    first = history.find(b"\n\n# ")  # an entry begins with a blank line and its time
    path.write_bytes(history[first:] if first >= 0 else b"")


def converse(runner: Runner, known: Known) -> None:
    """Run until Ctrl-D or ``quit``. Ctrl-C discards the input, or stops the running query."""
    session: PromptSession[str] = PromptSession(
        history=history(history_file()),
        completer=SqlCompleter(known),
        complete_in_thread=True,
        complete_while_typing=False,
        multiline=True,
        prompt_continuation=MORE,
        key_bindings=_keys(),
        lexer=PygmentsLexer(SqlLexer),
        enable_history_search=True,
    )
    while True:
        try:
            text = session.prompt(PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        statements = [Statement(text.strip())] if is_word(text) else split(text)[0]
        for statement in statements:
            code = runner.run(statement)
            if code is None:
                return
            if code:
                break
        known.forget()


def _keys() -> KeyBindings:
    """Return key bindings: Enter ends a complete statement, and otherwise begins a new line."""
    keys = KeyBindings()

    @keys.add("enter", filter=Condition(lambda: True))
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


# -- Completion of a statement: keywords, functions, streams, columns, queries. Pure, except the injected names -------

STATEMENTS = (
    *("SELECT", "WITH", "EXPLAIN", "SHOW", "DESCRIBE", "USAGE", "STOP"),
    *("CREATE STREAM", "CREATE VIEW", "ATTACH", "DETACH", "DROP STREAM", "DROP VIEW"),
)
KEYWORDS = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "AS", "AND", "OR", "NOT", "IN", "EXISTS", "BETWEEN", "LIKE"),
    *("IS NULL", "IS NOT NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST(", "INTERVAL", "UNION ALL", "TRUE", "FALSE", "NULL"),
    *("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "ON", "window(", "session_window(", "date_trunc("),
)
_WORD = re.compile(r"[A-Za-z0-9_-]*\Z")
_RELATIONS = re.compile(
    r"\b(?:from|join)\s+`?(\w+)`?(?:\s+(?:as\s+)?(?!on\b|where\b|group\b|join\b|left\b|right\b|full\b)(\w+))?", re.I
)


def word_before(text: str) -> str:
    """Return the unfinished word at the end of the text; empty at the beginning of a word."""
    match = _WORD.search(text)
    return match[0] if match else ""


def candidates(before: str, text: str, names: Known) -> list[str]:
    """Return replacements for the last word of ``before``, in order; ``text`` is the statement to its end."""
    word = word_before(before)
    left = blanked(before[: len(before) - len(word)])
    if _in_text(left):
        return []
    last = left.split()[-1].lower() if left.split() else ""
    names_offered: Iterable[str]
    if left.endswith("\\"):
        names_offered = ("help", "quit")
    elif left.endswith("."):
        names_offered = _columns_of(word_before(left[:-1]), text, names)
    elif not last:
        names_offered = STATEMENTS
    elif (declared := _declared(left.lower().split(), names)) is not None:
        names_offered = declared
    elif last == "explain":
        names_offered = ("SELECT", "WITH", "PLACEMENT", "QUERY")
    elif last == "placement":
        names_offered = ("SELECT", "WITH", "QUERY")
    elif last == "show":
        names_offered = (*SHOWN, "STREAM", "QUERY")
    elif left.lower().split()[-2:] == ["show", "stream"] or last in ("describe", "desc", "from", "join"):
        names_offered = names.streams()
    elif last == "stop" or left.lower().split()[-2:] == ["stop", "query"]:
        names_offered = names.live_queries()
    elif last in ("query", "usage"):
        names_offered = names.queries()
    else:
        names_offered = (
            *_columns_read(text, names),
            *KEYWORDS,
            *(f"{name}(" for name in sorted({*ALLOWED, *ALLOWED_AGGREGATES})),
        )
    return _cased(word, names_offered)


def _declared(words: list[str], names: Known) -> Iterable[str] | None:
    """Return candidates in statements that change streams, None in others; ``words`` are those before the current word."""
    first, last = words[0], words[-1]
    if first in ("create", "drop") and len(words) == 1:
        return ("STREAM", "VIEW")
    if first == "drop":
        return names.streams() if len(words) == 2 else ()
    if words[:2] == ["create", "view"]:
        return None if "as" in words else ("AS",) if len(words) > 2 else ()
    if first == "create":
        in_columns = "".join(words).count("(") > "".join(words).count(")")
        return (*TYPES, "decimal(") if in_columns else ("EVENT TIME", "DELAY", "COMMENT") if len(words) > 2 else ()
    if first not in ("attach", "detach"):
        return None
    if last == ("to" if first == "attach" else "from"):
        return names.streams()
    if last == "at":
        return names.members()
    if len(words) == 1:
        return CONNECTORS if first == "attach" else (*names.sources(), "FROM")
    if first == "detach":
        return ("FROM",) if "from" not in words else ("AT",)
    return ("TO",) if "to" not in words else ("AT", "AS", "WITH (")


def relations(text: str) -> dict[str, str]:
    """Return the streams read in the text, by their names there."""
    return {alias or name: name for name, alias in _RELATIONS.findall(blanked(text))}


def _columns_of(alias: str, text: str, names: Known) -> tuple[str, ...]:
    by_name = {name.lower(): stream for name, stream in relations(text).items()}
    return tuple(names.streams().get(by_name.get(alias.lower(), alias), ()))


def _columns_read(text: str, names: Known) -> list[str]:
    """Return the columns of the streams read; those of all streams if none is known yet."""
    known = names.streams()
    read = [stream for stream in relations(text).values() if stream in known]
    return sorted({column for stream in read or known for column in known[stream]})


def _cased(word: str, names: Iterable[str]) -> list[str]:
    """Return the words with this prefix; keywords in the case of the prefix."""
    lower = word.lower()
    matching = [name for name in names if name.lower().startswith(lower)]
    return list(dict.fromkeys(name.lower() if word and word.islower() and name.isupper() else name for name in matching))


def _in_text(left: str) -> bool:
    """Whether a string is open."""
    return len(re.findall(r"(?<!\\)'", left)) % 2 == 1
