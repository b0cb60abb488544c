"""The end of the log in memory, wherever the log goes: what a debug dump shows."""

from __future__ import annotations

from collections import deque
from typing import TextIO, cast

MAX_LINES = 1000
MAX_CHARACTERS = 2000
"""Of a line; what is longer is cut."""

_lines: deque[str] = deque(maxlen=MAX_LINES)


class KeptTail:
    """As much of a text stream as loggers use: writes to another one, and keeps the last lines."""

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


def kept(out: TextIO) -> TextIO:
    """A stream that writes to ``out``, and whose last lines :func:`tail` tells."""
    return cast(TextIO, KeptTail(out))


def tail() -> list[str]:
    """The last lines that were logged, oldest first."""
    return list(_lines)
