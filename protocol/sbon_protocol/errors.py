"""Errors that all packages share: for bad bytes from a peer, and for rejected requests."""

from collections.abc import Iterable


class ProtocolError(Exception):
    """A peer broke the protocol. ``reason`` is a stable kebab-case word for counters; the message says more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class SbonError(Exception):
    """A request cannot be carried out; nothing has been left half done.

    ``code`` is a stable kebab-case word for programs, ``message`` says the problem, ``where`` names the field, file and line,
    or peer, and ``hint`` says what to do about it. ``details`` carries further lines (the node that rejected the request, and
    why).
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


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint with the known names that are spelt alike, in upper or lower case; ``otherwise`` if there are none."""
    from difflib import get_close_matches  # only for a refusal

    names = {one.lower(): one for one in known}
    near = [names[one] for one in get_close_matches(name[:100].lower(), names, n=3)]
    return f"did you mean {' or '.join(near)}?" if near else otherwise


class BrokenInvariantError(RuntimeError):
    """A bug in our own code: never caught to continue, always loud."""
