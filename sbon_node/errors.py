"""Errors for users and calling peers: a line with a code, a place and a remedy."""

from __future__ import annotations

from sbon_protocol.errors import SbonError as SbonError


class BrokenInvariantError(RuntimeError):
    """A bug in our own code: never caught to continue, always loud."""
