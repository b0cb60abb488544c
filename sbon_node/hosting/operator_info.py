"""The description of an operator by its host."""

from __future__ import annotations

import msgspec

from sbon_node.engine.interface import Engine
from sbon_node.hosting.hosted_operator import HostedOperator
from sbon_node.hosting.ports import OperatorPorts
from sbon_node.model.durability import LOCAL, BackupInfo
from sbon_node.model.operators import OperatorStats
from sbon_node.model.queries import AHEAD, ENGINE_STARTS, HELD_BACK, OperatorInfo
from sbon_node.model.states import operator_states
from sbon_node.model.states.backup_states import MISSING
from sbon_node.model.states.operator_states import OperatorState
from sbon_node.model.stream_counts import SpillCount
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.port import NodePort
from sbon_node.streams.watermark import shown_watermark
from sbon_node.workflow.context import Context


def operator_info(
    context: Context, engine: Engine, ports: OperatorPorts, hosted: HostedOperator, state: OperatorState, reason: str
) -> OperatorInfo:
    """Return the description of an operator in that state."""
    operator, outbox = hosted.spec.id, context.outbox
    watermark_ms, ended = _promised(outbox, operator)
    port, letters = ports.open.get(operator), ports.letters.get(operator)
    if state == operator_states.STARTING:
        reason = reason or (ENGINE_STARTS if engine.status == "starting" else "")
    elif port is not None:
        reason = reason or _held_back(outbox, port)
    return OperatorInfo(
        id=operator,
        node=context.name,
        fragment=hosted.spec.fragment,
        state=state,
        reason=reason,
        epoch=hosted.spec.epoch,
        durability=hosted.spec.durability,
        backup=ports.backups.info(operator) or (BackupInfo(state=MISSING) if hosted.spec.durability != LOCAL else None),
        stats=engine.stats(operator) if port is None else _since_it_began(engine.stats(operator), port),
        spilled=port.spilled if port is not None else SpillCount(),
        watermark_ms=watermark_ms,
        ended=ended,
        skipped=letters.rows if letters is not None else 0,
        dead_letters=letters.path if letters is not None else "",
        measures=ports.described(operator),
        past_moves=hosted.spec.past_moves,
        queries=tuple(one.query for one in hosted.readers) if hosted.references else (),
    )


def _since_it_began(stats: OperatorStats, port: NodePort) -> OperatorStats:
    """Return the engine's statistics with counts that go on over restarts and moves."""
    totals = port.meter.totals
    return msgspec.structs.replace(
        stats,
        rows_in=totals.rows_in,
        rows_out=totals.rows_out,
        bytes_in=totals.bytes_in,
        bytes_out=totals.bytes_out,
        batches=totals.batches,
    )


def _held_back(outbox: Outbox, port: NodePort) -> str:
    """Return why a healthy operator takes no batch of its available input."""
    if port.operator in outbox.streams() and outbox.pressure(port.operator):
        return HELD_BACK
    return f"{', '.join(port.held)} {AHEAD}" if port.held else ""


def _promised(outbox: Outbox, operator: str) -> tuple[int | None, bool]:
    """Return its output's watermark, as shown to users, and whether it has ended; None while the stream is not open."""
    if operator not in outbox.streams():
        return None, False
    return shown_watermark(outbox.watermark_ms(operator)), outbox.ended(operator)
