"""All cases of ``sbon bench migration``, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import msgspec

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon_cli.commands.experiments.migration.figures import Peer, row_of
from sbon_cli.commands.experiments.migration.measuring import HOSTS, SOURCE, Case, Measured, measure
from sbon_node.engine.settings import EngineSettings
from sbon_node.experiments.bench.migration import peer
from sbon_node.experiments.bench.migration.kinds import KINDS
from sbon_node.experiments.harness.experiment import Found, Notify, Row
from sbon_node.logging.output import LogSettings, configure
from sbon_node.model.operators import StateProvider, TimeBuckets
from sbon_node.sql.settings import QuerySettings

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
