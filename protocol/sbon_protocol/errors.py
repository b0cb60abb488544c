"""The protocol's own error: the only one that bytes from a peer can raise."""

from __future__ import annotations


class ProtocolError(Exception):
    """A peer broke the protocol. ``reason`` is a stable kebab-case word to count by; the message says more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
