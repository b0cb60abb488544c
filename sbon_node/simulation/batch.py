"""One batch of a simulated operator, in Spark's steps: plan, run, hand over, commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from sbon_node.engine.checkpoint import BatchLog
from sbon_node.errors import SbonError
from sbon_node.simulation.evaluate import arrow_schema, decode, encode, fragment
from sbon_node.streams.frame import Frame, FrameDraft, InputOffset
from sbon_node.streams.watermark import output_watermark

if TYPE_CHECKING:
    from sbon_node.simulation.engine import RunningOperator, SimulatedHost

MAX_CUTS = 3
"""A batch's output is cut into one to so many frames, otherwise at each run: nobody may rely on the cut."""


class Progress:
    """How far an operator has got: ``after`` is what the newest committed batch has read, ``planned`` a batch to run again."""

    def __init__(self, folder: Path, inputs: int) -> None:
        self.log = BatchLog(folder)
        offsets, commits = self.log.offsets(), self.log.commits()
        committed = commits[-1] if commits else -1
        if commits:
            self.log.check_commit(committed)
        start = tuple(InputOffset() for _ in range(inputs))
        self.next = committed + 1
        self.after = self.log.read_offsets(committed) if committed >= 0 else start
        self.planned = self.log.read_offsets(self.next) if self.next in offsets else None


async def run_batch(host: SimulatedHost, operator: RunningOperator, progress: Progress) -> None:
    """Waits for news, and carries one batch from plan to commit; returns without one where nothing is new."""
    times, steps, port = host.engine.times, host.engine.steps, operator.port
    batch, upto = progress.next, progress.planned
    if upto is None:
        upto = await host.ask(lambda: port.poll(progress.after, times.poll))
        if upto == progress.after or operator.stopping:
            return
        operator.in_batch = True
        await host.pause(times.between_steps)
        _check_room(host, operator)
        progress.log.write_offsets(batch, upto)
        progress.planned = upto
        steps("plan")
    operator.in_batch = True
    began = asyncio.get_running_loop().time()
    offsets = upto
    frames: list[Frame] = []
    for position, (before, to) in enumerate(zip(progress.after, offsets, strict=True)):
        frames += await host.ask(lambda p=position, a=before.frame, u=to.frame: port.fetch(p, a, u))  # type: ignore[misc]
    await host.pause(times.between_steps)
    drafts = evaluate(host, operator, frames, offsets)
    steps("run")
    await host.pause(times.between_steps)
    await host.ask(lambda: port.write(batch, offsets, drafts))
    await host.pause(times.between_steps)
    _check_room(host, operator)
    progress.log.write_commit(batch)
    operator.commits.put_nowait(batch)
    progress.next, progress.after, progress.planned = batch + 1, offsets, None
    _count(operator, frames, drafts, asyncio.get_running_loop().time() - began)
    steps("commit")
    if host.repeats:
        host.repeats = False
        await operator.commits.join()
        await host.ask(lambda: port.write(batch, offsets, evaluate(host, operator, frames, offsets)))


def evaluate(
    host: SimulatedHost, operator: RunningOperator, frames: Sequence[Frame], offsets: tuple[InputOffset, ...]
) -> list[FrameDraft]:
    """The batch's output in frames, at least one; all rows, in order, and the watermark and end of its inputs."""
    spec, rng = operator.spec, host.engine.rng
    empty = arrow_schema(spec.inputs[0].schema).empty_table()
    tables = [decode(frame.payload) for frame in frames if frame.payload]
    output = fragment(spec.fragment)(pa.concat_tables([empty, *tables]))
    watermark_ms, ended = output_watermark(offsets)
    born_ms = min([frame.born_ms for frame in frames if frame.rows] or [frame.born_ms for frame in frames] or [0])
    cuts = sorted(rng.randint(0, output.num_rows) for _ in range(rng.randint(0, MAX_CUTS - 1)))
    drafts = []
    for start, end in zip([0, *cuts], [*cuts, output.num_rows], strict=True):
        part = output.slice(start, end - start)
        drafts.append(
            FrameDraft(payload=encode(part), rows=part.num_rows, watermark_ms=watermark_ms, ended=ended, born_ms=born_ms)
        )
    return drafts


def _check_room(host: SimulatedHost, operator: RunningOperator) -> None:
    if host.engine.is_full():
        raise SbonError("disk-full", "no room for the checkpoint", where=operator.spec.id, hint="free some space")


def _count(operator: RunningOperator, frames: Sequence[Frame], drafts: Sequence[FrameDraft], seconds: float) -> None:
    before = operator.stats
    rows, size = sum(draft.rows for draft in drafts), sum(len(draft.payload) for draft in drafts)
    operator.pace.observe(asyncio.get_running_loop().time(), rows, size)
    operator.stats = msgspec.structs.replace(
        before,
        rows_in=before.rows_in + sum(frame.rows for frame in frames),
        rows_out=before.rows_out + rows,
        bytes_in=before.bytes_in + sum(len(frame.payload) for frame in frames),
        bytes_out=before.bytes_out + size,
        batches=before.batches + 1,
        batch_ms=seconds * 1000,
        rows_out_s=operator.pace.rows_s,
        bytes_out_s=operator.pace.bytes_s,
    )
