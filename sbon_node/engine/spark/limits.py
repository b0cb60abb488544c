"""Limits on an engine's use of resources, beyond which it is replaced."""

from __future__ import annotations

from sbon_node.engine.interface import Footprint
from sbon_node.engine.settings import EngineSettings


def too_full(footprint: Footprint, settings: EngineSettings) -> str:
    """Return why the engine must be replaced; empty if it need not."""
    if footprint.threads > settings.replace_threads:
        return f"{footprint.threads} threads, over the limit of {settings.replace_threads}"
    if footprint.descriptors > settings.replace_descriptors:
        return f"{footprint.descriptors} descriptors, over the limit of {settings.replace_descriptors}"
    percent = 100 * footprint.heap_mb / footprint.max_heap_mb
    if percent > settings.replace_heap_percent:
        return f"{percent:.0f} % of the heap after a collection, over the limit of {settings.replace_heap_percent} %"
    return ""
