"""Batches of a simulated operator, each in Spark's steps: plan, run, hand over, commit."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from sbon_lab.simulation.engine.engine_process import RunningOperator, SimulatedEngineProcess
from sbon_lab.simulation.engine.evaluate import RETAINED, Evaluation, StateFiles, encode
from sbon_node.engine.checkpoint import BatchLog
from sbon_node.engine.counting import with_batch
from sbon_node.engine.promise import EARLIEST_MS, batch_promise, reached_ms
from sbon_node.model.frames import Frame, FrameDraft, InputOffset
from sbon_protocol.api.operators import InputSpec
from sbon_protocol.api.states import operator_states
from sbon_protocol.errors import SbonError

MAX_CUTS = 3
"""Most frames of a batch's output. Each run cuts it differently, so that no code relies on the cut."""


class Progress:
    """Progress of an operator, read from its checkpoint.

    ``after`` are the offsets that the newest committed batch has read, ``planned`` is a batch to run again, and
    ``watermark_ms`` is the watermark of the newest batch. Raises ``ValueError`` for an unreadable checkpoint.
    """

    def __init__(self, operator: RunningOperator) -> None:
        spec = operator.spec
        self.log = BatchLog(operator.checkpoint, fsync=operator.fsync)
        self.state = StateFiles(operator.checkpoint)
        offsets, commits = self.log.offsets(), self.log.commits()
        committed = commits[-1] if commits else -1
        start = tuple(InputOffset() for _ in spec.inputs)
        self.next = committed + 1
        self.after = self.log.read_offsets(committed) if commits else start
        self.planned = self.log.read_offsets(self.next) if self.next in offsets else None
        self.watermark_ms = self.log.read_watermark(committed) if commits else EARLIEST_MS
        global_ms = self.log.read_next_watermark(committed) if commits else EARLIEST_MS
        self.watermarks = Watermarks(spec.inputs, self.log.read_watermark(self.next) if self.planned else global_ms)
        self.evaluation = Evaluation(spec)
        self.born_ms = 0
        self.has_run = False
        if spec.has_state and commits:
            self.state.restore(committed, self.evaluation, self.watermark_ms)

    @property
    def is_due(self) -> bool:
        """Whether a batch without new input would release rows. Spark asks only its last batch, which a restart forgets."""
        return self.has_run and self.watermarks.global_ms > self.watermark_ms


async def run_batches(engine_process: SimulatedEngineProcess, operator: RunningOperator) -> None:
    """Run batch after batch from the checkpoint on, until stopped."""
    operator.in_batch = False
    await operator.commits.join()  # a living engine process first reports its commits to the daemon
    await engine_process.ask(lambda: _recover(operator))
    try:
        progress = Progress(operator)
    except ValueError as error:
        raise SbonError("checkpoint-unreadable", str(error), where=operator.spec.id) from error
    engine_process.engine.report(operator, operator_states.RUNNING)
    if engine_process.engine.fails:
        await asyncio.sleep(engine_process.engine.draw(engine_process.engine.times.between_steps))
        raise SbonError("bad-rows", engine_process.engine.fails)
    while not operator.stopping:
        await run_batch(engine_process, operator, progress)
        operator.in_batch = False


async def _recover(operator: RunningOperator) -> None:
    """Mend the checkpoint and publish committed frames, as the daemon does before an engine starts."""
    port, log = operator.port, BatchLog(operator.checkpoint, fsync=operator.fsync)
    committed = log.repair(port.has_batch, port.visible_batch())
    log.sync()
    await port.store(committed)
    port.recover(committed)


async def run_batch(engine_process: SimulatedEngineProcess, operator: RunningOperator, progress: Progress) -> None:
    """Wait for new input, and carry one batch from plan to commit; return without a batch if nothing is new."""
    times, failpoint, port = engine_process.engine.times, engine_process.engine.failpoint, operator.port
    batch, upto = progress.next, progress.planned
    if upto is None:
        wait_s = engine_process.engine.draw((0.01, times.poll)) if progress.is_due else times.poll
        upto = await engine_process.ask(lambda: operator.poll(progress.after, wait_s, is_due=progress.is_due))
        if upto is None or operator.stopping:
            await engine_process.pause(times.between_steps)
            return
        await engine_process.pause(times.between_steps)
        _check_room(engine_process, operator)
        progress.log.write_offsets(batch, upto, progress.watermarks.global_ms)
        progress.planned = upto
        failpoint("plan")
    operator.in_batch = True
    began = asyncio.get_running_loop().time()
    offsets = upto
    frames: list[list[Frame]] = []
    for position, (before, to) in enumerate(zip(progress.after, offsets, strict=True)):
        frames.append(await engine_process.ask(lambda p=position, a=before.frame, u=to.frame: port.fetch(p, a, u)))  # type: ignore[misc]
    await engine_process.pause(times.between_steps)
    rows = sum(frame.rows for input_frames in frames for frame in input_frames)
    if rows and (work_s := times.work_s(operator.spec.id)) > 0:
        await asyncio.sleep(engine_process.engine.rng.gammavariate(rows, work_s))
    output = _evaluate(operator, progress, frames)
    drafts = _cut(engine_process, operator, progress, output, frames)
    failpoint("run")
    await engine_process.pause(times.between_steps)
    await engine_process.ask(lambda: port.write(batch, offsets, drafts))
    await engine_process.pause(times.between_steps)
    _check_room(engine_process, operator)
    repeated = _cut(engine_process, operator, progress, output, frames) if engine_process.repeats else []
    progress.watermark_ms, progress.has_run = progress.watermarks.global_ms, True
    progress.watermarks.batch_ran(progress.after, offsets)
    progress.log.write_commit(batch, progress.watermarks.global_ms)
    progress.log.purge(batch - RETAINED)
    progress.log.sync()
    operator.commits.put_nowait(batch)
    progress.next, progress.after, progress.planned = batch + 1, offsets, None
    _count(operator, frames, drafts, asyncio.get_running_loop().time() - began)
    failpoint("commit")
    if engine_process.repeats and repeated:
        engine_process.repeats = False
        await operator.commits.join()
        await engine_process.ask(lambda: port.write(batch, offsets, repeated))


def _evaluate(operator: RunningOperator, progress: Progress, frames: Sequence[Sequence[Frame]]) -> Any:
    """Return the batch's output; its additions to the state are in the checkpoint."""
    arrived = progress.evaluation.arrived(frames)
    if operator.spec.has_state:
        progress.state.write(progress.next, arrived)
    now_ms = progress.watermarks.global_ms
    output = progress.evaluation.advance(arrived, progress.watermark_ms, now_ms)
    if operator.spec.has_state:
        progress.state.compact(progress.next, progress.evaluation, now_ms)
    return output


def _cut(
    engine_process: SimulatedEngineProcess,
    operator: RunningOperator,
    progress: Progress,
    output: Any,
    frames: Sequence[Sequence[Frame]],
) -> list[FrameDraft]:
    """Return the batch's output in at least one frame: all rows, in order, and the watermark that the batch may promise."""
    rng = engine_process.engine.rng
    assert progress.planned is not None
    has_state = operator.spec.has_state
    watermark_ms, ended = batch_promise(progress.planned, progress.watermarks.global_ms if has_state else None)
    born_ms = [frame.born_ms for of_input in frames for frame in of_input if frame.rows]
    progress.born_ms = min(born_ms or [frame.born_ms for of_input in frames for frame in of_input] or [progress.born_ms])
    cuts = sorted(rng.randint(0, output.num_rows) for _ in range(rng.randint(0, MAX_CUTS - 1)))
    drafts = []
    for start, end in zip([0, *cuts], [*cuts, output.num_rows], strict=True):
        rows = output.slice(start, end - start)
        drafts.append(
            FrameDraft(payload=encode(rows), rows=rows.num_rows, watermark_ms=watermark_ms, ended=ended, born_ms=progress.born_ms)
        )
    return drafts


def _check_room(engine_process: SimulatedEngineProcess, operator: RunningOperator) -> None:
    if engine_process.engine.is_full():
        raise SbonError("disk-full", "no space for the checkpoint", where=operator.spec.id, hint="free some space")


def _count(operator: RunningOperator, frames: Sequence[Sequence[Frame]], drafts: Sequence[FrameDraft], seconds: float) -> None:
    rows, size = sum(draft.rows for draft in drafts), sum(len(draft.payload) for draft in drafts)
    read = [frame for of_input in frames for frame in of_input]
    operator.pace.observe(asyncio.get_running_loop().time(), rows, size)
    taken = (sum(frame.rows for frame in read), sum(len(frame.payload) for frame in read))
    operator.stats = with_batch(operator.stats, taken, (rows, size), seconds * 1000)


# -- Spark's watermark of a query with several inputs: ``WatermarkTracker``, including its loss of state at a restart --


class Watermarks:
    """Watermarks from one start of an operator to its end.

    A restart forgets the watermark of each input, which is then 1970 until its next marker. The global watermark is the least
    of all; it stays in the checkpoint, and ``global_ms`` comes from there.
    """

    def __init__(self, inputs: Sequence[InputSpec], global_ms: int) -> None:
        self._inputs = [(position, spec) for position, spec in enumerate(inputs) if spec.event_time]
        self._reached_ms: dict[int, int | None] = {position: None for position, _ in self._inputs}
        self.global_ms = global_ms

    def batch_ran(self, before: Sequence[InputOffset], upto: Sequence[InputOffset]) -> None:
        """Record the marker of every input whose offset has changed; it holds for the next batch."""
        for position, spec in self._inputs:
            if upto[position] != before[position]:
                reached, known = reached_ms(upto[position], spec.lag_ms), self._reached_ms[position]
                self._reached_ms[position] = reached if known is None else max(known, reached)
        self.global_ms = max(self.global_ms, least(0 if time_ms is None else time_ms for time_ms in self._reached_ms.values()))


def least(reached_ms: Iterable[int]) -> int:
    """Return the least watermark of all inputs, including those without a known watermark."""
    return min(reached_ms, default=0)
