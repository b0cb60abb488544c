"""Measures of a running operator, decayed over time (docs/design/measures.md). They come from peers, so they are bounded."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_protocol.api.bounded import MAX_COUNT, Counted, PerSecond
from sbon_protocol.api.shown import Shown

Sum = Annotated[float, Meta(ge=0, le=1e18)]

MAX_MEASURED_INPUTS = 4096


class InputSums(msgspec.Struct, frozen=True, kw_only=True):
    """Decayed sums of what came from one input."""

    rows: Sum = 0.0
    bytes: Sum = 0.0


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over all batches of an operator since it began; they do not decay."""

    rows_in: Counted = 0
    rows_out: Counted = 0
    bytes_in: Counted = 0
    bytes_out: Counted = 0
    batches: Counted = 0

    def plus(self, *, rows_in: int, rows_out: int, bytes_in: int, bytes_out: int) -> Totals:
        """Return the counts with one more batch. They stay within their bounds, whatever a peer has handed over."""
        return Totals(
            rows_in=min(self.rows_in + rows_in, MAX_COUNT),
            rows_out=min(self.rows_out + rows_out, MAX_COUNT),
            bytes_in=min(self.bytes_in + bytes_in, MAX_COUNT),
            bytes_out=min(self.bytes_out + bytes_out, MAX_COUNT),
            batches=min(self.batches + 1, MAX_COUNT),
        )


class MeasureSums(msgspec.Struct, frozen=True, kw_only=True):
    """Decayed sums over an operator's batches: its measures as they are stored, and move with it.

    ``seconds`` is the decayed time that was observed. With x rows of input and y seconds of work in a batch, ``work_s`` is the
    sum of y over batches with input, ``work_rows`` that of x, ``work_s2_row`` that of y² / x, and ``work_batches`` their number.
    ``cpu_s`` and the like are the same of processor time at speed 1, over the batches whose engine has measured it.
    """

    seconds: Sum = 0.0
    inputs: Annotated[tuple[InputSums, ...], Meta(max_length=MAX_MEASURED_INPUTS)] = ()
    rows_out: Sum = 0.0
    bytes_out: Sum = 0.0
    batches: Sum = 0.0
    batch_s: Sum = 0.0
    work_batches: Sum = 0.0
    work_rows: Sum = 0.0
    work_s: Sum = 0.0
    work_s2_row: Sum = 0.0
    cpu_batches: Sum = 0.0
    cpu_rows: Sum = 0.0
    cpu_s: Sum = 0.0
    cpu_s2_row: Sum = 0.0
    totals: Totals = Totals()


class InputMeasures(Shown, frozen=True, kw_only=True):
    """Measures of one input. ``waiting_frames`` have been received and not finished with; their ``waiting_bytes`` are payload."""

    stream: str
    rows_s: PerSecond | None = None
    bytes_s: PerSecond | None = None
    waiting_frames: Counted = 0
    waiting_bytes: Counted = 0
    clock_error_ms: PerSecond | None = None
    """Largest error of the stream's host's clock as this host knows it; None while it is unknown."""


class OperatorMeasures(Shown, frozen=True, kw_only=True):
    """Measures of an operator, weighted towards the present; None before the first measurement.

    ``seconds`` is the weighted time that they cover. A row of input takes ``row_ms`` of its host's time on average, its part of
    its batch's fixed cost included, with a squared coefficient of variation of ``row_scv``. ``cpu_row_ms`` and ``cpu_row_scv``
    are the same of processor time at speed 1, as far as the engine knows whose it is. ``busy`` is the share of time with a batch
    under way.
    """

    seconds: Sum = 0.0
    inputs: Annotated[tuple[InputMeasures, ...], Meta(max_length=MAX_MEASURED_INPUTS)] = ()
    rows_out_s: PerSecond | None = None
    bytes_out_s: PerSecond | None = None
    selectivity: PerSecond | None = None
    """Rows out for one row in."""
    batches_s: PerSecond | None = None
    batch_ms: PerSecond | None = None
    row_ms: PerSecond | None = None
    row_scv: PerSecond | None = None
    cpu_row_ms: PerSecond | None = None
    cpu_row_scv: PerSecond | None = None
    busy: PerSecond | None = None
    state_bytes: Counted | None = None
    """Bytes of the checkpoint that a move would copy, as of the last look; None before the first."""
    core_ms: PerSecond | None = None
    """Time that a row keeps a core busy: ``row_ms``, scaled so that all operators of the host make its machine's load.

    None while the machine is idle.
    """

    @property
    def rows_in_s(self) -> float | None:
        """Rows a second of all inputs together."""
        rates = [read.rows_s for read in self.inputs if read.rows_s is not None]
        return sum(rates) if rates else None
