"""Conversion between stream watermarks and Spark's watermarks (docs/design.md, section 7)."""

from collections.abc import Sequence

from sbon_node.model.frames import END_WATERMARK_MS, NO_WATERMARK_MS, InputOffset
from sbon_node.streams.watermark import output_watermark

FAR_MS = 10**15
"""The watermark of a stream that has ended: beyond every window, and within the range of Spark's timestamps."""
EARLIEST_MS = -(10**14)
"""The watermark of a stream without one: before every event time, less any lag. Spark itself begins at 1970."""


def reached_ms(offset: InputOffset, lag_ms: int) -> int:
    """Return the engine's watermark of an input at this offset.

    Spark also drops rows *at* its watermark, hence one millisecond less.
    """
    if offset.watermark_ms == NO_WATERMARK_MS and not offset.ended:
        return EARLIEST_MS
    return FAR_MS if offset.ended or offset.watermark_ms >= END_WATERMARK_MS else offset.watermark_ms - lag_ms - 1


def promised_ms(engine_watermark_ms: int) -> int:
    """Return the watermark of the output of a batch that ran with the engine's watermark."""
    if engine_watermark_ms <= EARLIEST_MS:
        return NO_WATERMARK_MS
    return END_WATERMARK_MS if engine_watermark_ms >= FAR_MS else engine_watermark_ms + 1


def joined_promise(offsets: Sequence[InputOffset], lags_ms: Sequence[int | None]) -> tuple[int, bool]:
    """Return :func:`batch_promise` of a batch of inner joins, whose state gives rows only with later input.

    All pairs of its input are in its output, so it promises what Spark's watermark will be after it. An input without a lag has
    no event time.
    """
    reached = min(reached_ms(offset, lag_ms) for offset, lag_ms in zip(offsets, lags_ms, strict=True) if lag_ms is not None)
    return promised_ms(reached), all(offset.ended for offset in offsets)


def batch_promise(offsets: Sequence[InputOffset], engine_watermark_ms: int | None) -> tuple[int, bool]:
    """Return the watermark (milliseconds) of a batch's output, and whether it has ended.

    ``engine_watermark_ms`` is the watermark that a batch with state ran with. It bounds the state's output, and lags one batch
    behind the inputs.
    """
    watermark_ms, ended = output_watermark(offsets)
    if engine_watermark_ms is None:
        return watermark_ms, ended
    promised = promised_ms(engine_watermark_ms)
    return promised, ended and promised == END_WATERMARK_MS
