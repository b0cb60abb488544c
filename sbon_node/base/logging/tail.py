"""The last log lines in memory, for any log output; the debug dump shows them."""

from __future__ import annotations

from collections import deque
from typing import TextIO, cast

MAX_LINES = 1000
MAX_CHARACTERS = 2000
"""Longest kept line in characters; longer lines are cut."""

_lines: deque[str] = deque(maxlen=MAX_LINES)


class KeptTail:
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


def kept(out: TextIO) -> TextIO:
    """Return a stream that writes to ``out``, and whose last lines :func:`tail` returns."""
    return cast(TextIO, KeptTail(out))


def tail() -> list[str]:
    """Return the last logged lines, oldest first."""
    return list(_lines)
