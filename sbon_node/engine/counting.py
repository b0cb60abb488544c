"""Counts of an operator's batches, as an engine keeps them. Pure."""

import msgspec

from sbon_node.streams.mean_rate import MeanRate
from sbon_protocol.api.operators import OperatorStats


def with_batch(before: OperatorStats, read: tuple[int, int], written: tuple[int, int], batch_ms: float) -> OperatorStats:
    """Return the counts with another batch: its rows and bytes ``read`` and ``written``, and its time."""
    return msgspec.structs.replace(
        before,
        rows_in=before.rows_in + read[0],
        rows_out=before.rows_out + written[0],
        bytes_in=before.bytes_in + read[1],
        bytes_out=before.bytes_out + written[1],
        batches=before.batches + 1,
        batch_ms=batch_ms,
    )


def at_present(counted: OperatorStats, pace: MeanRate, now: float) -> OperatorStats:
    """Return the counts with the present ``pace`` of output."""
    rate = pace.at_present(now)
    return msgspec.structs.replace(counted, rows_out_s=rate.rows_s, bytes_out_s=rate.bytes_s)
