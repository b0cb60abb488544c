"""Malformed HTTP requests: counted, and logged at a limited rate, since any client can send many."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http import HttpProcessingError

from sbon_node.net.counters import Counters


class _Malformed(logging.Filter):
    """Filter that takes the HTTP server's log lines about such requests, and lets all others pass."""

    def __init__(self, counters: Counters) -> None:
        super().__init__()
        self._counters = counters

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if isinstance(error, web.RequestPayloadError):
            self._counters.refuse("http-malformed", reason="the body is not as its headers say")
            return False
        if not isinstance(error, HttpProcessingError):
            return self._counters.may_log("http-failed")
        peer = str(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
        reason = next(iter(error.message.splitlines()), "") or type(error).__name__
        self._counters.refuse("http-malformed", peer=peer, reason=reason)
        return False


def malformed_log(counters: Counters) -> logging.Logger:
    """Return the log of a server, outside the registry of loggers: each server has its own counts."""
    logger = logging.Logger(__name__)
    logger.parent = logging.getLogger()
    logger.addFilter(_Malformed(counters))
    return logger
