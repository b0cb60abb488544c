"""Durability of a query: which losses its operators survive."""

from __future__ import annotations

from typing import Final, Literal

Durability = Literal["local", "replicated"]
"""Where an operator's state and output are kept: at its host alone, or also at a backup node.

A local operator survives the death of its processes, and waits for its host while this is away. A replicated operator also
survives the loss of its host.
"""

LOCAL: Final = "local"
REPLICATED: Final = "replicated"
