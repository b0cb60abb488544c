"""The interface of engines that run operators (SBON, section 3): Spark in production, a flow model in simulation."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from sbon_node.engine.alignment import Cut
from sbon_node.engine.manifest import Manifest
from sbon_node.model.frames import Frame, FrameDraft, InputOffset
from sbon_node.streams.skipped import SkippedRows
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OnError, OperatorSpec, OperatorStats
from sbon_protocol.api.states.operator_states import OperatorState


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """Resources an engine's process uses; ``heap_mb`` is the heap after the last full collection."""

    threads: int
    descriptors: int
    heap_mb: float
    max_heap_mb: float


class OperatorPort(Protocol):
    """One running operator's access to the node; an engine reaches its operator's streams only through it."""

    async def store(self, committed: int | None) -> None:
        """Wait until batches up to ``committed`` may become visible: where the operator has a backup, it must have them; call
        before :meth:`recover`.
        """

    def recover(self, committed: int | None) -> None:
        """Make batches up to ``committed``, the checkpoint's newest commit, visible; call before every start.

        Raises :class:`sbon_protocol.errors.SbonError` where checkpoint and streams cannot belong together.
        """

    def has_batch(self, batch: int) -> bool:
        """Return whether a batch's output is stored; a commit without it never happened (docs/design.md, section 8)."""

    def visible_batch(self) -> int:
        """The newest batch that subscribers may have seen; -1 before the first."""

    def is_awaited(self) -> bool:
        """Return whether a reader has received everything that is visible, and so waits for more."""

    async def poll(self, after: tuple[InputOffset, ...], wait_s: float) -> tuple[InputOffset, ...]:
        """Return offsets, one per input, up to which a batch may now be planned; equal to ``after`` without news.

        Returns on the first news on any input, or after ``wait_s`` seconds; holds back news while the operator's outbox is
        full. The span is bounded in bytes.
        """

    async def fetch(self, position: int, after_frame: int, upto_frame: int) -> list[Frame]:
        """Return frames (after_frame, upto_frame] of input ``position``; wait for those a restart must resend."""

    async def write(
        self, batch: int, offsets: tuple[InputOffset, ...], drafts: list[FrameDraft], skipped: SkippedRows | None = None
    ) -> None:
        """Store a batch's output in one transaction, and its ``skipped`` rows as dead letters.

        A visible batch is not written again; one that is not visible is replaced.

        Raises :class:`sbon_protocol.errors.SbonError` (``disk-full``, ``frame-too-large``): the operator then stops with that
        reason, uncommitted, and loses nothing.
        """

    def spent(self, cpu_s: float) -> None:
        """Count processor time for the batch under way; with the rows of the batch that is written next it counts."""

    async def committed(self, batch: int) -> None:
        """Make everything up to ``batch`` visible and acknowledge its inputs: ``commits/batch`` exists."""


OnOperatorState = Callable[[str, OperatorState, str], None]
"""Called with the operator's id, its new state, and the reason of a failure."""


class Engine(Protocol):
    """Runs operators on this node."""

    @property
    def status(self) -> str:
        """``idle``, ``starting``, ``running`` or ``failed: reason``."""

    @property
    def starts(self) -> int:
        """Starts of the engine's process since the node started; each but the first followed a death or a replacement."""

    @property
    def replacements(self) -> int:
        """Number of replacements of a full engine."""

    @property
    def replacement_s(self) -> float:
        """Duration of the last replacement's interruption of operators; 0 before the first."""

    @property
    def recovery_s(self) -> float:
        """Seconds until operators ran again after the engine's last death, without those set aside; 0 before the first."""

    @property
    def engine_pid(self) -> int | None:
        """The engine's process, parent of all its other processes; None while there is none."""

    async def analyse(self, fragment: str, inputs: tuple[Schema, ...], on_error: OnError = "fail") -> Schema:
        """Return the fragment's output schema from the engine's own analyser on empty views.

        Raises :class:`SbonError` with line and column. Only the fragment's constants are run.
        """

    async def start(self) -> None:
        """Return once the engine runs; raise :class:`SbonError` if it cannot be started."""

    async def instantiate(self, spec: OperatorSpec, port: OperatorPort, checkpoint: Path) -> None:
        """Start the operator from its checkpoint folder, new or used; return once it runs.

        Nothing is left after an error. After a cancellation the operator may still start, until :meth:`destroy`.
        """

    async def destroy(self, operator: str) -> None:
        """Stop the operator after a committed batch; keep its checkpoint. Unknown ids are ignored."""

    def stats(self, operator: str) -> OperatorStats: ...

    async def close(self) -> None:
        """Stop all operators after committed batches, then the engine."""


class MovingEngine(Engine, Protocol):
    """An engine whose operators another engine can follow while they run (docs/design.md, section 9).

    All raise :class:`SbonError` ``operator-unknown``.
    """

    async def copy_checkpoint(self, operator: str, batch: int, into: Path, known: Manifest | None = None) -> Manifest:
        """Copy the checkpoint of the committed ``batch`` into the new folder ``into`` on the same disk, while the operator runs.

        With ``known``, the folder has that copy of an earlier batch, which becomes one of this batch. Raises :class:`SbonError`
        ``checkpoint-superseded`` if a newer batch must be taken, ``checkpoint-too-large``, ``disk-full`` or ``disk-error``.
        """

    def committed(self, operator: str) -> int:
        """Return the newest batch that the engine has committed, visible or not; -1 before the first."""

    def cut(self, operator: str) -> Cut | None:
        """Return the position after the newest visible batch; None before the first."""

    def planned(self, operator: str) -> list[tuple[int, ...]]:
        """Return the last frame of each input after each batch that is planned and not yet visible, and the two before those.

        A batch whose input Spark has just been offered may be missing.
        """

    def hold(self, operator: str) -> None:
        """Let the operator plan no batch at all any more, not even one without input, until :meth:`release`.

        It stays held when its engine starts again.
        """

    async def resting(self, operator: str, within_s: float) -> Cut:
        """Wait until the last batch of a held operator is visible; return the position after it.

        Raises :class:`SbonError` ``not-settled`` after ``within_s`` seconds.
        """

    def release(self, operator: str) -> None:
        """Let a held operator plan batches again."""


class EngineCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity of this node's engine; ``operators`` bounds their number, whatever they take."""

    cores: float
    memory_mb: float
    bandwidth_bytes_s: float
    operators: int
    speed: float = 1.0
    """Speed of a core, relative to the reference processor."""
