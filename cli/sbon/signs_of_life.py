"""Whether a node that owes an answer lives. A node may take minutes for an answer; nobody waits for a frozen one.

The kernel accepts connections and requests for a process that is stopped, so that a silent connection shows nothing. Beside a
request without an answer, ``GET /readyz`` asks for any answer at all.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from sbon_protocol.errors import SbonError

from .requests import ANSWER_S, Ask, base_url, check_positive, frozen

CONNECT_S = 5.0
"""Longest wait for a connection, in seconds."""
SLOW_SHARE = 1 / 6
"""Share of the silence of a frozen node that passes before it is asked for a sign; a busy machine takes seconds for one."""
SIGN_PATH = "/readyz"
"""A node answers it in every state, if only with an error."""


class SignLimits(NamedTuple):
    """Seconds without an answer after which a node is asked for a sign of life, and those that a client waits for one."""

    slow_s: float
    sign_s: float

    @classmethod
    def of(cls, silent_s: float) -> Self:
        """Return the limits for a node that counts as frozen after ``silent_s``; raise ``bad-request``, also from ANSWER_S on."""
        check_positive(silent_s, "silent_s", below=ANSWER_S)
        return cls(SLOW_SHARE * silent_s, silent_s - SLOW_SHARE * silent_s)

    def frozen_after_s(self, ask: Ask[Any]) -> float:
        """Return the seconds after which the node counts as frozen if it owes the answer to ``ask``."""
        return ask.signs * sum(self)


class Watch:
    """Watch over a blocking request; the block lasts until its answer. Cuts its connection if the node is frozen.

    ``trace`` is the extension of that name for the request, from which the watch learns the request's socket.
    """

    def __init__(self, api: str, ask: Ask[Any], limits: SignLimits) -> None:
        self._api, self._ask, self._limits = api, ask, limits
        self._over = threading.Event()
        self._socket: socket.socket | None = None
        self._frozen = False

    @property
    def error(self) -> SbonError | None:
        """The error of a frozen node."""
        return frozen(self._api, self._limits.frozen_after_s(self._ask)) if self._frozen else None

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            self._socket = info["return_value"].get_extra_info("socket")

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, name=f"watch {self._api}", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()

    def _run(self) -> None:
        missing = 0
        while not self._over.wait(self._limits.slow_s):
            if self._socket is None or _gives_sign(self._api, self._limits.sign_s) or self._over.is_set():
                missing = 0
                continue
            missing += 1
            if missing < self._ask.signs:
                continue
            self._frozen = True
            with suppress(OSError):  # The answer came at last.
                self._socket.shutdown(socket.SHUT_RDWR)
            return


def _gives_sign(api: str, within_s: float) -> bool:
    url = urlsplit(base_url(api))
    assert url.hostname is not None
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=within_s)
    try:
        connection.request("GET", SIGN_PATH)
        connection.getresponse()
    except TimeoutError:
        return False
    except (OSError, http.client.HTTPException):
        return True  # Something is said, if only that nobody listens there any more: the request itself shows what that means.
    finally:
        connection.close()
    return True
