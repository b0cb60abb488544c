"""Rates, work and selectivity of one operator, as decayed sums over its batches. The meter is given the time.

An observation's weight halves every ``half_life_s``. A rate is the decayed sum of what came, divided by the decayed time
s(t) = integral of 2^(-u / half life) over the observed time. So a constant flow has its rate from the first second on, and a flow
that ends decays with the half-life.

The work of a row is a ratio of sums over batches with x rows and y seconds: mean m = sum(y) / sum(x). If rows were independent, a
batch's time would have a variance proportional to x. So the variance of a row is estimated by the weighted mean of
(y - m x)² / x, which is (sum(y² / x) - m sum(y)) / n (the ratio model; Cochran, Sampling Techniques, section 6.7).
"""

import math
from collections.abc import Sequence

from sbon_protocol.api.measures import InputMeasures, InputSums, MeasureSums, OperatorMeasures, Totals

LEAST_WEIGHT = 1e-9
"""Less than this of a sum counts as nothing."""


class OperatorMeter:
    """Measures the batches of an operator that reads these ``streams``, one for each of its inputs.

    ``speed`` is that of the host's cores, relative to the reference.
    """

    def __init__(
        self, streams: Sequence[str], *, half_life_s: float, speed: float = 1.0, sums: MeasureSums | None = None
    ) -> None:
        self._streams, self._half_life_s, self._speed = tuple(streams), half_life_s, speed
        self._observed_s: float | None = None
        self._sums = MeasureSums(inputs=tuple(InputSums() for _ in self._streams))
        self._batch = _Batch(len(self._streams))
        self.newest = -1
        """The newest batch that counts; -1 before the first of this run."""
        self.state_bytes: int | None = None
        if sums is not None:
            self.restore(sums)

    def restore(self, sums: MeasureSums) -> None:
        """Go on from the sums of an earlier run, or of another host; those with other inputs are ignored."""
        if len(sums.inputs) == len(self._streams):
            self._sums = sums

    def pause(self) -> None:
        """Leave out the time until :meth:`begin`. A batch under way is gone, and may run again."""
        self._observed_s = None
        self._batch = _Batch(len(self._streams))

    def begin(self, now: float) -> None:
        """Observe from now on; ignored while it observes."""
        if self._observed_s is None:
            self._observed_s = now

    # -- events of a batch ---------------------------------------------------------------------------------------------

    def fetched(self, now: float, position: int, rows: int, size: int) -> None:
        """The batch under way has read that from an input."""
        batch = self._batch
        batch.began_s = now if batch.began_s is None else batch.began_s
        batch.rows[position] += rows
        batch.bytes[position] += size

    def spent(self, cpu_s: float) -> None:
        """The engine has spent processor time on the batch under way."""
        self._batch.cpu_s += cpu_s

    def wrote(self, now: float, number: int, rows: int, size: int) -> None:
        """The batch under way has written its output, and counts. A batch that is written again counts once."""
        batch, self._batch = self._batch, _Batch(len(self._streams))
        if number <= self.newest:
            return
        self.newest = number
        sums = self._decayed(now)
        took_s = 0.0 if batch.began_s is None else max(0.0, now - batch.began_s)
        rows_in, cpu_s = sum(batch.rows), batch.cpu_s * self._speed
        has_cpu = rows_in > 0 and cpu_s > 0
        self._sums = MeasureSums(
            seconds=sums.seconds,
            inputs=tuple(
                InputSums(rows=read.rows + came, bytes=read.bytes + came_bytes)
                for read, came, came_bytes in zip(sums.inputs, batch.rows, batch.bytes, strict=True)
            ),
            rows_out=sums.rows_out + rows,
            bytes_out=sums.bytes_out + size,
            batches=sums.batches + (batch.began_s is not None),
            batch_s=sums.batch_s + took_s,
            work_batches=sums.work_batches + (rows_in > 0),
            work_rows=sums.work_rows + rows_in,
            work_s=sums.work_s + (took_s if rows_in else 0.0),
            work_s2_row=sums.work_s2_row + (took_s**2 / rows_in if rows_in else 0.0),
            cpu_batches=sums.cpu_batches + has_cpu,
            cpu_rows=sums.cpu_rows + (rows_in if has_cpu else 0),
            cpu_s=sums.cpu_s + (cpu_s if has_cpu else 0.0),
            cpu_s2_row=sums.cpu_s2_row + (cpu_s**2 / rows_in if has_cpu else 0.0),
            totals=sums.totals.plus(rows_in=rows_in, rows_out=rows, bytes_in=sum(batch.bytes), bytes_out=size),
        )

    @property
    def totals(self) -> Totals:
        """Counts since the operator began, here or at other hosts."""
        return self._sums.totals

    # -- reading -------------------------------------------------------------------------------------------------------

    def sums(self, now: float) -> MeasureSums:
        """Return the sums, decayed to ``now``."""
        self._sums = self._decayed(now)
        return self._sums

    def measures(self, now: float, waiting: Sequence[tuple[int, int]]) -> OperatorMeasures:
        """Return the measures; ``waiting`` are the frames and bytes of each input that are not finished with."""
        sums = self.sums(now)
        rows_in = sum(read.rows for read in sums.inputs)
        row_s, cpu_row_s = _ratio(sums.work_s, sums.work_rows), _ratio(sums.cpu_s, sums.cpu_rows)
        return OperatorMeasures(
            seconds=sums.seconds,
            inputs=tuple(
                InputMeasures(
                    stream=stream,
                    rows_s=_ratio(read.rows, sums.seconds),
                    bytes_s=_ratio(read.bytes, sums.seconds),
                    waiting_frames=frames,
                    waiting_bytes=size,
                )
                for stream, read, (frames, size) in zip(self._streams, sums.inputs, waiting, strict=True)
            ),
            rows_out_s=_ratio(sums.rows_out, sums.seconds),
            bytes_out_s=_ratio(sums.bytes_out, sums.seconds),
            selectivity=_ratio(sums.rows_out, rows_in),
            batches_s=_ratio(sums.batches, sums.seconds),
            batch_ms=_milliseconds(_ratio(sums.batch_s, sums.batches)),
            row_ms=_milliseconds(row_s),
            row_scv=_row_scv(row_s, sums.work_s, sums.work_s2_row, sums.work_batches),
            cpu_row_ms=_milliseconds(cpu_row_s),
            cpu_row_scv=_row_scv(cpu_row_s, sums.cpu_s, sums.cpu_s2_row, sums.cpu_batches),
            busy=_ratio(sums.batch_s, sums.seconds),
            state_bytes=self.state_bytes,
        )

    def _decayed(self, now: float) -> MeasureSums:
        sums = self._sums
        if self._observed_s is None or now <= self._observed_s:
            return sums
        elapsed_s, self._observed_s = now - self._observed_s, now
        weight = 0.5 ** (elapsed_s / self._half_life_s)
        observed_s = self._half_life_s / math.log(2) * (1.0 - weight)
        return MeasureSums(
            seconds=sums.seconds * weight + observed_s,
            inputs=tuple(InputSums(rows=read.rows * weight, bytes=read.bytes * weight) for read in sums.inputs),
            totals=sums.totals,
            **{name: getattr(sums, name) * weight for name in _DECAYED},
        )


_DECAYED = tuple(name for name in MeasureSums.__struct_fields__ if name not in ("seconds", "inputs", "totals"))


class _Batch:
    """The batch under way."""

    def __init__(self, inputs: int) -> None:
        self.began_s: float | None = None
        self.rows, self.bytes = [0] * inputs, [0] * inputs
        self.cpu_s = 0.0


def _row_scv(row_s: float | None, work_s: float, work_s2_row: float, batches: float) -> float | None:
    """Return the squared coefficient of variation of a row's time; None without work."""
    return max(0.0, work_s2_row - row_s * work_s) / batches / row_s**2 if row_s else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > LEAST_WEIGHT else None


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000.0
