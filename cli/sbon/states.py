"""States of queries and sources that programs look at; docs/states.md has all, with their meanings."""

from __future__ import annotations

from sbon_protocol.api.states.lifecycle import LOST, UNREACHABLE
from sbon_protocol.api.states.query_states import FAILED, FINISHED, LIVE, PLACING, RUNNING, STOPPED
from sbon_protocol.api.states.source_states import PAUSED

__all__ = ["FAILED", "FINISHED", "LIVE", "LOST", "PAUSED", "PLACING", "RUNNING", "STOPPED", "UNREACHABLE"]
