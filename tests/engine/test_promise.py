"""Promises of a batch's output."""

from __future__ import annotations

import pytest

from sbon_node.engine.promise import EARLIEST_MS, FAR_MS, batch_promise, joined_promise, reached_ms
from sbon_node.model.frames import END_WATERMARK_MS, NO_WATERMARK_MS, InputOffset

AT_50 = InputOffset(frame=3, watermark_ms=50)
AT_80 = InputOffset(frame=1, watermark_ms=80)
SILENT = InputOffset()
ENDED = InputOffset(frame=9, watermark_ms=END_WATERMARK_MS, ended=True)


@pytest.mark.parametrize(
    "offsets, lags_ms, promised",
    [
        ((AT_50, AT_80), (0, 0), (50, False)),
        ((AT_50, AT_80), (0, 40), (40, False)),
        ((AT_50, SILENT), (0, 0), (NO_WATERMARK_MS, False)),
        ((AT_50, ENDED), (0, 0), (50, False)),
        ((ENDED, ENDED), (0, 10), (END_WATERMARK_MS, True)),
        ((AT_50, SILENT), (0, None), (50, False)),
    ],
)
def test_a_batch_of_joins_promises_what_the_next_would_run_with(
    offsets: tuple[InputOffset, ...], lags_ms: tuple[int | None, ...], promised: tuple[int, bool]
) -> None:
    assert joined_promise(offsets, lags_ms) == promised
    spark_ms = min(reached_ms(offset, lag) for offset, lag in zip(offsets, lags_ms, strict=True) if lag is not None)
    assert batch_promise(offsets, spark_ms) == promised


@pytest.mark.parametrize("ran_with_ms, promised", [(EARLIEST_MS, (NO_WATERMARK_MS, False)), (FAR_MS, (END_WATERMARK_MS, True))])
def test_a_batch_with_other_state_promises_what_it_ran_with(ran_with_ms: int, promised: tuple[int, bool]) -> None:
    assert batch_promise((ENDED, ENDED), ran_with_ms) == promised
