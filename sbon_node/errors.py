"""Errors for users and calling peers: a line with a code, a place and a remedy."""

from __future__ import annotations

from sbon_protocol.errors import BrokenInvariantError as BrokenInvariantError
from sbon_protocol.errors import SbonError as SbonError
