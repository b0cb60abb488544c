"""Rows of the result of ``sbon bench migration``."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median
from typing import Any, NamedTuple

from sbon_cli.commands.experiments.migration.measuring import MEGABYTE, Measured


class Peer(NamedTuple):
    """Gaps of the same fragment when it stops, is copied and starts, and its usual gap."""

    gaps_s: Sequence[float]
    usual_gap_s: float
    wrong: int


def row_of(measured: Measured, peer: Peer | None) -> dict[str, Any]:
    """Return the flat row of a case.

    A gap is the time at the consumer between the last frame with rows of the old host and the first of the new one; a pause is
    what it is beyond the usual gap. A row's delay is the time since the input on which it depends was written. Probes are
    round trips to the API of both hosts, while an operator moves and otherwise.
    """
    moves, usual_s = measured.moves, _percentile(measured.usual_gaps_s, 50)
    pauses_s = [gap - usual_s for gap in measured.gaps_s] if usual_s is not None else []
    bare_s = [gap - peer.usual_gap_s for gap in peer.gaps_s] if peer else []
    return {
        "kind": measured.case.kind,
        "provider": measured.case.provider,
        "state_mb": measured.case.state_mb,
        "moves": len(moves),
        "given_up": len(measured.failed),
        "usual_gap_p50_s": _rounded(usual_s),
        "usual_gap_p95_s": _rounded(_percentile(measured.usual_gaps_s, 95)),
        "pause_p50_s": _rounded(_percentile(pauses_s, 50)),
        "pause_p95_s": _rounded(_percentile(pauses_s, 95)),
        "delay_p50_s": _rounded(_percentile(measured.delays_s, 50)),
        "delay_p95_s": _rounded(_percentile(measured.delays_s, 95)),
        "usual_delay_p50_s": _rounded(_percentile(measured.usual_delays_s, 50)),
        "usual_delay_p95_s": _rounded(_percentile(measured.usual_delays_s, 95)),
        "level_p50_s": _rounded(_percentile([move.moved_s - move.pause_s - move.requested_s for move in moves], 50)),
        "copied_mb": _rounded(median(move.copied_bytes for move in moves) / MEGABYTE) if moves else None,
        "follow_cores": _rounded(mean(cost.cores for cost in measured.costs)) if moves else None,
        "follow_memory_mb": round(mean(cost.memory_mb for cost in measured.costs)) if moves else None,
        "probe_p50_ms": _rounded(_percentile(measured.probes_ms, 50)),
        "probe_p99_ms": _rounded(_percentile(measured.probes_ms, 99)),
        "probe_max_ms": _rounded(max(measured.probes_ms, default=None)),
        "usual_probe_p50_ms": _rounded(_percentile(measured.usual_probes_ms, 50)),
        "usual_probe_p99_ms": _rounded(_percentile(measured.usual_probes_ms, 99)),
        "usual_probe_max_ms": _rounded(max(measured.usual_probes_ms, default=None)),
        "bare_usual_gap_p50_s": _rounded(peer.usual_gap_s) if peer else None,
        "bare_stop_start_p50_s": _rounded(_percentile(bare_s, 50)),
        "bare_stop_start_p95_s": _rounded(_percentile(bare_s, 95)),
        "rows": measured.rows,
        "wrong": measured.wrong + (peer.wrong if peer else 0),
    }


def _percentile(values: Sequence[float], percent: int) -> float | None:
    """Return the nearest-rank percentile."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)] if values else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
