"""Watermarks: the promise of a stateless operator's output, and its display (docs/design.md, section 7)."""

from collections.abc import Sequence

from sbon_node.model.frames import END_WATERMARK_MS, NO_WATERMARK_MS, InputOffset
from sbon_protocol.errors import BrokenInvariantError


def output_watermark(offsets: Sequence[InputOffset]) -> tuple[int, bool]:
    """Return the output's watermark in milliseconds of event time, and whether the output has ended.

    The watermark is the minimum over the inputs; the output has ended if all inputs have. An input that has ended holds back no
    other. ``offsets`` are those of the batch, whose last frame carries the result.
    """
    if not offsets:
        raise BrokenInvariantError("an operator without inputs has no watermark")
    watermark_ms = min(END_WATERMARK_MS if offset.ended else offset.watermark_ms for offset in offsets)
    return watermark_ms, all(offset.ended for offset in offsets)


def shown_watermark(watermark_ms: int) -> int | None:
    """Return the event time (ms) to display; None before the first watermark, and once the stream has ended."""
    return None if watermark_ms in (NO_WATERMARK_MS, END_WATERMARK_MS) else watermark_ms
