"""Output of a node's log: text for a terminal, JSON lines for machines; to stderr or a file."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO, cast

import msgspec
import structlog
from msgspec import Meta

from sbon_node.base.logging.file import LogFile
from sbon_node.base.logging.levels import NOTHING, Level, LogLevels, let_through, set_levels
from sbon_node.base.logging.tail import kept
from sbon_node.base.logging.tap import LogTap
from sbon_protocol.errors import SbonError


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
    out = kept(stream or (_opened(settings) if settings.file else sys.stderr))
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
        processors=[*shared, tap, *rendering],
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
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
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )
    handler.setFormatter(formatter)
    logging.getLogger().handlers[:] = [handler]


def _json(event: dict[str, Any], **_: Any) -> str:
    return msgspec.json.encode(event, enc_hook=repr).decode()
