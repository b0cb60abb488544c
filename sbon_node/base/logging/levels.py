"""Log levels at run time: a general level, and others for modules and libraries by name.

Our own loggers have no names: an event belongs to the module that writes it, which is looked up only while some module has a
level of its own. Nothing survives a restart; ``log.level`` is a node's initial level.
"""

import logging
import sys
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sbon_protocol.errors import SbonError, did_you_mean

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
NOTHING = logging.CRITICAL + 1
"""Above every level."""
OURS = ("sbon_node", "sbon_protocol", "sbon_cli")
_LOGGING = (__name__, "sbon_node.base.logging.output")

Level = Literal["debug", "info", "warning", "error"]
LoggerName = Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z_]\w*(\.\w+)*\Z")]


class LogLevels(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``loggers`` are modules of sbon (``sbon_node.net`` with all below it) and loggers of libraries (``asyncio``)."""

    level: Level
    loggers: Annotated[dict[LoggerName, Level], Meta(max_length=64)] = {}


_levels = LogLevels(level="info")
_let_through = NOTHING


def levels() -> LogLevels:
    """Return the levels of this process."""
    return _levels


def set_levels(wanted: LogLevels) -> None:
    """Replace the levels by ``wanted``; raise :class:`SbonError` ``unknown-logger`` before any change."""
    global _levels
    for name in wanted.loggers:
        _check(name)
    for name in _levels.loggers:
        if not _is_ours(name):
            logging.getLogger(name).setLevel(logging.NOTSET)
    _levels = wanted
    _filter()
    level = LEVELS[wanted.level]
    # Libraries log nothing below a warning, except at level debug.
    logging.getLogger().setLevel(level if level == logging.DEBUG else max(level, logging.WARNING))
    logging.getLogger("asyncio").setLevel(max(level, logging.INFO))
    for name, own in wanted.loggers.items():
        if not _is_ours(name):
            logging.getLogger(name).setLevel(LEVELS[own])


def let_through(least: int) -> None:
    """Create events of that level and above for listeners, whether they are written or not."""
    global _let_through
    _let_through = least
    _filter()


def is_written(level: int) -> bool:
    """Whether an event of that level from the caller of structlog is written."""
    chosen = _of_ours(_levels)
    least = level_of(_module(), _levels.level, chosen) if chosen else _levels.level
    return level >= LEVELS[least]


def _filter() -> None:
    """Skip events that are neither written nor listened to."""
    least = min(LEVELS[level] for level in (_levels.level, *_of_ours(_levels).values()))
    import structlog  # not needed to name levels, as the command line does

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(min(least, _let_through)))


def level_of(module: str, general: Level, chosen: dict[str, Level]) -> Level:
    """Return the level of the longest name in ``chosen`` that equals or contains the module."""
    while module:
        if module in chosen:
            return chosen[module]
        module = module.rpartition(".")[0]
    return general


def _module() -> str:
    """Return the module that writes the event: the first caller outside logging."""
    frame = sys._getframe(1)
    while True:
        name = str(frame.f_globals.get("__name__", ""))
        if name not in _LOGGING and name.partition(".")[0] != "structlog":
            return name
        if frame.f_back is None:
            return ""
        frame = frame.f_back


def _of_ours(of: LogLevels) -> dict[str, Level]:
    return {name: level for name, level in of.loggers.items() if _is_ours(name)}


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in OURS


def _check(name: str) -> None:
    known = [one for one in sys.modules if _is_ours(one)] if _is_ours(name) else list(logging.root.manager.loggerDict)
    if name not in known:
        hint = did_you_mean(name, known, "for example sbon_node.net, sbon_node.engine, asyncio")
        raise SbonError("unknown-logger", f"nothing logs as {name!r}", where="loggers", hint=hint)
