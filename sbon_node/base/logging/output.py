"""Output of a node's log: text for a terminal, JSON lines for machines; to stderr or a file."""

import asyncio
import logging
import os
import shutil
import sys
import threading
from collections import deque
from collections.abc import MutableMapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO, cast

import msgspec
import structlog
from msgspec import Meta

from sbon_node.base.events import LEVELS, Bus, LogLine, Made
from sbon_node.base.logging.levels import NOTHING, Level, LogLevels, is_written, let_through, set_levels
from sbon_protocol.errors import SbonError

MAX_TEXT = 4096
"""Most characters of a field in a copy."""
MAX_FIELDS = 64

_OWN = frozenset({"event", "level", "timestamp", "node"})


class LogTap:
    """A structlog processor, which copies log lines for listeners of the node's events, and drops those that only they want.

    :mod:`sbon_node.base.logging.levels` decides which lines are written.
    """

    def __init__(self) -> None:
        self._bus: Bus | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def listen_to(self, bus: Bus) -> None:
        """Send log lines to ``bus`` from now on; call it in the bus's running loop."""
        self._bus, self._loop, self._thread = bus, asyncio.get_running_loop(), threading.get_ident()
        bus.watch_listeners(lambda: let_through(bus.least_level))

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        self.copy(logger, method, event)
        if not is_written(LEVELS.get(str(event.get("level")), logging.CRITICAL)):
            raise structlog.DropEvent
        return event

    def copy(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Copy a line whose level another logger has already checked."""
        bus, loop = self._bus, self._loop
        if bus is None or loop is None or not bus.wanted("logs"):
            return event
        made = _line(dict(event))
        if threading.get_ident() == self._thread:
            bus.publish("logs", made)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(bus.publish, "logs", made)
        return event


def _line(event: dict[str, Any]) -> Made:
    if event.get("exc_info"):
        event = dict(structlog.processors.format_exc_info(None, "", event))
    event.pop("exc_info", None)
    fields = {key: _plain(value) for key, value in list(event.items())[:MAX_FIELDS] if key not in _OWN}
    level, message = str(event.get("level", "")), str(event.get("event", ""))[:MAX_TEXT]
    return partial(LogLine, level=level, message=message, fields=fields)


def _plain(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


MAX_LINES = 1000
MAX_CHARACTERS = 2000
"""Longest kept line in characters; longer lines are cut."""

_lines: deque[str] = deque(maxlen=MAX_LINES)


class TailedStream:
    """The part of a text stream that loggers use: writes to another stream, and keeps the last lines."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._begun = out, ""

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        _lines.extend(line[:MAX_CHARACTERS] for line in whole)
        self._begun = self._begun[:MAX_CHARACTERS]
        return self._out.write(text)

    def flush(self) -> None:
        self._out.flush()

    def isatty(self) -> bool:
        return self._out.isatty()


def tailed(out: TextIO) -> TextIO:
    """Return a stream that writes to ``out``, and whose last lines :func:`tail` returns."""
    return cast(TextIO, TailedStream(out))


def tail() -> list[str]:
    """Return the last logged lines, oldest first."""
    return list(_lines)


def cut(path: Path, max_bytes: int) -> None:
    """Move the content of a file over the limit to ``<path>.1``, in place of earlier content.

    It copies, because writers keep the file open; they must have opened it for appending. On a full disk the moved content is
    lost, but the limit holds.
    """
    if not path.exists() or path.stat().st_size <= max_bytes:
        return
    aside = path.with_name(f"{path.name}.1")
    try:
        shutil.copyfile(path, aside)
    except OSError:
        aside.unlink(missing_ok=True)
    os.truncate(path, 0)


class LogFile:
    """The part of a text stream that loggers use: appends to a file and cuts it, as other processes may do.

    It counts the lines that a full disk rejects, and reports them once writing works again. Raises ``OSError`` if the file
    cannot be opened.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes, self._lost = path, max_bytes, 0
        self._file = path.open("ab", buffering=0)

    def write(self, text: str) -> int:
        note = msgspec.json.encode({"event": "log-lines-lost", "pieces": self._lost}).decode() + "\n" if self._lost else ""
        try:
            self._file.write((note + text).encode("utf-8", "replace"))
            self._lost = 0
        except OSError:
            self._lost += 1
        return len(text)

    def flush(self) -> None:
        if os.fstat(self._file.fileno()).st_size > self._max_bytes:
            cut(self._path, self._max_bytes)

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Level, format and file of the log."""

    level: Level = "info"
    """least severity that is written; debug covers every operator and link, error only failures"""
    format: Literal["auto", "console", "json"] = "auto"
    """console for people, json for machines (one object a line); auto takes console on a terminal"""
    file: Annotated[str, Meta(max_length=4096)] = ""
    """file to append to rather than standard error, for all that is logged; empty for none"""
    file_bytes: Annotated[int, Meta(ge=65_536, le=1 << 40)] = 64 * 1024 * 1024
    """a log file beyond this becomes <file>.1; bytes; raise it to keep more"""


def configure(settings: LogSettings, *, node: str = "", stream: TextIO | None = None) -> LogTap:
    """Set up structlog and the standard library's logging for this process; ``node`` is bound to every event.

    Return the tap that passes log lines to listeners of the node's events. Raises :class:`SbonError` ``bad-log-file``.
    """
    out = tailed(stream or (_opened(settings) if settings.file else sys.stderr))
    console = settings.format == "console" or (settings.format == "auto" and out.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendering: list[Any] = (
        [structlog.dev.ConsoleRenderer(colors=out.isatty())]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]
    )
    tap = LogTap()
    structlog.configure(
        processors=[*shared, tap, *rendering], logger_factory=structlog.PrintLoggerFactory(out), cache_logger_on_first_use=False
    )
    structlog.contextvars.clear_contextvars()
    if node:
        structlog.contextvars.bind_contextvars(node=node)
    _take_over_standard_logging([*shared, structlog.stdlib.add_logger_name, tap.copy], rendering, out)
    let_through(NOTHING)
    set_levels(LogLevels(level=settings.level))
    return tap


def silence() -> None:
    """Turn logging off, for commands that run nodes in their own process and print only results."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _opened(settings: LogSettings) -> TextIO:
    try:
        return cast(TextIO, LogFile(Path(settings.file), settings.file_bytes))
    except OSError as error:
        raise SbonError("bad-log-file", f"cannot be written: {error.strerror}", where=f"log.file {settings.file}") from error


def _take_over_standard_logging(shared: list[Any], rendering: list[Any], out: TextIO) -> None:
    """Give libraries' log lines, which use the standard library, the same form."""
    handler = logging.StreamHandler(out)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering]
    )
    handler.setFormatter(formatter)
    logging.getLogger().handlers[:] = [handler]


def _json(event: dict[str, Any], **_: Any) -> str:
    return msgspec.json.encode(event, enc_hook=repr).decode()
