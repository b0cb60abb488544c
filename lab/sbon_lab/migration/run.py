"""All cases of ``sbon bench migration``, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple, cast

import msgspec

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon_lab.experiments.harness.experiment import Found, Notify, Row
from sbon_lab.migration import peer
from sbon_lab.migration.kinds import KINDS
from sbon_lab.migration.measuring import HOSTS, MEGABYTE, SOURCE, Case, Measured, measure
from sbon_node.base.logging.output import LogSettings, configure
from sbon_node.engine.settings import EngineSettings
from sbon_node.planning.sql.settings import QuerySettings
from sbon_protocol.api.operators import StateProvider, TimeBuckets

LARGE_MB, LARGE_MOVES = 1000, 5
"""State from which on there are fewer moves."""
PEER_MOVES = 10
HEAP_MB = 512


def run(
    folder: Path,
    kinds: Sequence[str],
    providers: Sequence[str],
    states_mb: Sequence[int],
    moves: int,
    notify: Notify,
    found: Found,
) -> list[Row]:
    """Return a row for each case.

    ``found`` gets each row twice: once its moves are over, and again with the figures of stopping and starting beside them.
    """
    configure(LogSettings(level="error"))
    rows, cases = [], cases_of(kinds, providers, states_mb)
    for (state_mb, provider), group in groupby(cases, lambda case: (case.state_mb, case.provider)):
        engine = _engine(state_mb, provider)
        overrides = {f"engine.{name}": value for name, value in engine.items()}
        nodes = (SOURCE, *HOSTS)
        with LocalCluster(nodes, folder=folder / f"{provider}-{state_mb}", overrides=overrides) as cluster:
            measured = []
            for case in group:
                measured.append(measure(cluster, case, _moves(state_mb, moves), folder / case.name, notify))
                found(row_of(measured[-1], None))
        for one in measured:
            rows.append(row_of(one, _peer(one, engine, moves, notify)))
            found(rows[-1])
    return rows


def cases_of(kinds: Sequence[str], providers: Sequence[str], states_mb: Sequence[int]) -> list[Case]:
    """Return a case for each kind, provider and size of state; without providers, for that which a node chooses for the size.

    Kinds without notes have only small state; a filter has none, and gigabytes of it are only kept in RocksDB, where they may be.
    """
    return [
        Case(kind, provider, state_mb)
        for state_mb in states_mb
        for provider in providers or [QuerySettings().provider_for(state_mb)]
        for kind in kinds
        if _fits(kind, provider, state_mb, providers)
    ]


def _fits(kind: str, provider: str, state_mb: int, providers: Sequence[str]) -> bool:
    if state_mb >= LARGE_MB and provider == "hdfs":
        return "rocksdb" not in providers
    return "note" in KINDS[kind].columns if state_mb else KINDS[kind].has_state or provider in providers[:1] or not providers


def _moves(state_mb: int, moves: int) -> int:
    return min(moves, LARGE_MOVES) if state_mb >= LARGE_MB else moves


def _engine(state_mb: int, provider: str) -> dict[str, Any]:
    """Return settings of engines: state in the heap needs room there."""
    in_heap = 3 * state_mb if provider == "hdfs" else state_mb
    return {**{name.removeprefix("engine."): value for name, value in SHORT_LIVED.items()}, "heap_mb": HEAP_MB + in_heap}


def _peer(measured: Measured, engine: dict[str, Any], moves: int, notify: Notify) -> Peer:
    case = measured.case
    gaps_s, usual_s, wrong = asyncio.run(
        peer.stop_copy_start(
            KINDS[case.kind],
            case.feed,
            EngineSettings(**engine),
            moves=min(_moves(case.state_mb, moves), PEER_MOVES),
            state_provider=cast(StateProvider, case.provider),
            buckets=tuple(msgspec.convert(bucket, TimeBuckets, from_attributes=True) for bucket in measured.buckets),
            notify=lambda text: notify(f"{case.name}: {text}"),
        )
    )
    return Peer(gaps_s, usual_s, wrong)


# -- Rows of the result of ``sbon bench migration`` -------------------------------------------------------------------


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
