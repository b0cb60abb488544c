"""Copies of log lines for listeners of the node's events; drops lines that only listeners asked for."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import MutableMapping
from functools import partial
from typing import Any

import structlog

from sbon_node.base.events import LEVELS, Bus, LogLine, Made
from sbon_node.base.logging.levels import is_written, let_through

MAX_TEXT = 4096
"""Most characters of a field in a copy."""
MAX_FIELDS = 64

_OWN = frozenset({"event", "level", "timestamp", "node"})


class LogTap:
    """A structlog processor; :mod:`sbon_node.base.logging.levels` decides which lines are written."""

    def __init__(self) -> None:
        self._bus: Bus | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def listen_to(self, bus: Bus) -> None:
        """Send log lines to ``bus`` from now on; call it in the bus's running loop."""
        self._bus, self._loop, self._thread = bus, asyncio.get_running_loop(), threading.get_ident()
        bus.on_listeners = lambda: let_through(bus.least_level)

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
