"""Errors that a user or a calling peer is told about: one line, with a code, a place and a remedy."""

from __future__ import annotations


class SbonError(Exception):
    """Something asked for cannot be done; nothing has been left half done.

    ``code`` is a stable kebab-case word for programs, ``message`` says what is wrong, ``where`` names the field, file and
    line, or peer, and ``hint`` says what to do about it. ``details`` carries further lines (which node refused, and why).
    """

    def __init__(self, code: str, message: str, *, where: str = "", hint: str = "", details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{remedy}"


class BrokenInvariantError(RuntimeError):
    """Our own code is wrong: never caught to carry on, always loud."""
