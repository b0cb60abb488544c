"""Watermarks: what the output of a stateless operator may promise, and how people are told (docs/design.md, section 7)."""

from __future__ import annotations

from collections.abc import Sequence

from sbon_node.errors import BrokenInvariantError
from sbon_node.streams.frame import END_WATERMARK_MS, NO_WATERMARK_MS, InputOffset


def output_watermark(offsets: Sequence[InputOffset]) -> tuple[int, bool]:
    """Watermark in milliseconds of event time, and whether the output has ended: the minimum over the inputs, and all of them.

    An input that has ended holds nobody back. ``offsets`` are those of the batch, whose last frame carries the result.
    """
    if not offsets:
        raise BrokenInvariantError("an operator without inputs has no watermark")
    watermark_ms = min(END_WATERMARK_MS if offset.ended else offset.watermark_ms for offset in offsets)
    return watermark_ms, all(offset.ended for offset in offsets)


def told_watermark(watermark_ms: int) -> int | None:
    """The event time (ms) that people are told; None before anything is promised, and once the stream has ended."""
    return None if watermark_ms in (NO_WATERMARK_MS, END_WATERMARK_MS) else watermark_ms
