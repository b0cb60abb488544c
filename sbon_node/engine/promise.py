"""What markers tell an engine with Spark's watermarks, and what its output may promise in turn (docs/design.md, section 7)."""

from __future__ import annotations

from collections.abc import Sequence

from sbon_node.streams.frame import END_WATERMARK_MS, NO_WATERMARK_MS, InputOffset
from sbon_node.streams.watermark import output_watermark

FAR_MS = 10**15
"""The watermark of a stream that has ended: beyond every window, and within what Spark's timestamps hold."""


def reached_ms(offset: InputOffset, lag_ms: int) -> int | None:
    """Where an input's offset moves the engine's watermark of it; None before anything is known.

    Spark drops what is *at* its watermark too, hence one millisecond less.
    """
    if offset.watermark_ms == NO_WATERMARK_MS and not offset.ended:
        return None
    return FAR_MS if offset.ended or offset.watermark_ms >= END_WATERMARK_MS else offset.watermark_ms - lag_ms - 1


def promised_ms(engine_watermark_ms: int) -> int:
    """What the output of a batch that ran with that watermark may promise: nothing earlier follows."""
    if engine_watermark_ms <= 0:
        return NO_WATERMARK_MS
    return END_WATERMARK_MS if engine_watermark_ms >= FAR_MS else engine_watermark_ms + 1


def batch_promise(offsets: Sequence[InputOffset], engine_watermark_ms: int | None) -> tuple[int, bool]:
    """The watermark (milliseconds) of a batch's output, and whether it has ended; ``engine_watermark_ms`` is the one that a batch
    with state ran with.

    What the state has let go is told by that one, which lags one batch behind the inputs.
    """
    watermark_ms, ended = output_watermark(offsets)
    if engine_watermark_ms is None:
        return watermark_ms, ended
    promised = promised_ms(engine_watermark_ms)
    return promised, ended and promised == END_WATERMARK_MS
