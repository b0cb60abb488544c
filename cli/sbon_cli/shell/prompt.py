"""The shell on a terminal: history, completion, statements of many lines."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from sbon_cli.shell.completion import candidates, word_before
from sbon_cli.shell.known import Known
from sbon_cli.shell.run import Runner
from sbon_cli.shell.statements import Statement, complete, is_word, split
from sbon_cli.terminal.output import err

MAX_HISTORY_BYTES = 1024 * 1024
PROMPT, MORE = "sbon> ", "   -> "


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
