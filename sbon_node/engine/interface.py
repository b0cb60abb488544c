"""The small interface behind which operators run (SBON, section 2.2): Spark in earnest, a flow model in simulation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from sbon_node.errors import SbonError
from sbon_node.streams.frame import Frame, FrameDraft, InputOffset


class Column(msgspec.Struct, frozen=True):
    """One column; ``type`` is a Spark SQL type as DDL writes it, in lower case: ``bigint``, ``timestamp``, ``decimal(10,2)``."""

    name: str
    type: str


Schema = tuple[Column, ...]


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator reserves at its host."""

    cores: float = 0.1
    memory_mb: float = 150.0
    bandwidth_bytes_s: float = 0.0


class InputSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A stream an operator reads, the node that hosts it, and its schema. All inputs of one ``view`` are its rows.

    Where the operator has state, the stream's watermark less ``lag_ms`` is one of column ``event_time``, and may be ``ahead_ms``
    beyond that of its other inputs. ``shared``: what feeds this input feeds another one, too.
    """

    stream: str
    node: str
    schema: Schema
    view: Annotated[int, Meta(ge=0, lt=64)] = 0
    event_time: Annotated[str, Meta(max_length=128)] = ""
    lag_ms: Annotated[int, Meta(ge=0, le=36_500 * 86_400_000)] = 0
    ahead_ms: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    shared: bool = False


OperatorId = Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*\Z")]
"""Peers choose it, and it names a folder: no separators, no leading dots."""


class OperatorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One operator: a Spark SQL fragment over views ``in0, in1 ...`` whose output is the stream named by the operator's id.

    ``readers`` are the subscribers for which the stream keeps its frames from the first on, however late they come.
    """

    id: OperatorId
    query: str
    fragment: str
    inputs: tuple[InputSpec, ...]
    schema: Schema
    epoch: int = 1
    needs: Needs = Needs()
    reader: Literal["simple", "partitioned"] = "simple"
    durability: Literal["local"] = "local"
    readers: Annotated[tuple[Annotated[str, Meta(max_length=160)], ...], Meta(max_length=256)] = ()

    @property
    def has_state(self) -> bool:
        """Whether it keeps rows until the watermark lets them go."""
        return any(one.event_time for one in self.inputs)

    def views(self) -> list[list[tuple[int, InputSpec]]]:
        """The inputs of ``in0``, ``in1`` and so on, each with its position; raises :class:`SbonError` ``bad-inputs``."""
        found: list[list[tuple[int, InputSpec]]] = [[] for _ in range(1 + max((one.view for one in self.inputs), default=-1))]
        for position, one in enumerate(self.inputs):
            found[one.view].append((position, one))
        for number, inputs in enumerate(found):
            if not inputs or any(one.schema != inputs[0][1].schema for _, one in inputs):
                raise SbonError("bad-inputs", "its inputs are none, or differ", where=f"{self.id}, in{number}")
        return found


Counted = Annotated[int, Meta(ge=0, le=2**62)]
PerSecond = Annotated[float, Meta(ge=0, le=1e15)]
EventTimeMs = Annotated[int, Meta(ge=-(2**53), le=2**53)]
"""Milliseconds since 1970 (UTC), as JSON carries them whole."""


class OperatorStats(msgspec.Struct, frozen=True, kw_only=True):
    """What strategies need to know; all counts since the operator was started last. Peers tell it: it is bounded."""

    rows_in: Counted = 0
    rows_out: Counted = 0
    bytes_in: Counted = 0
    bytes_out: Counted = 0
    batches: Counted = 0
    batch_ms: Annotated[float, Meta(ge=0)] = 0.0
    rows_out_s: PerSecond | None = None
    """While it runs, older seconds counting less; None before there is anything to tell."""
    bytes_out_s: PerSecond | None = None

    @property
    def selectivity(self) -> float:
        """Rows out per row in; 1 before the first row."""
        return self.rows_out / self.rows_in if self.rows_in else 1.0


class OperatorPort(Protocol):
    """What the node offers one running operator. An engine talks to its operator's streams through nothing else."""

    def recover(self, committed: int | None) -> None:
        """Call before every start of the engine's work: the checkpoint has committed up to this batch, which becomes visible.

        Raises :class:`sbon_node.errors.SbonError` where checkpoint and streams cannot belong together.
        """
        ...

    def has_batch(self, batch: int) -> bool:
        """Whether the output of a batch is stored; a commit without it never happened (docs/design.md, section 8)."""
        ...

    async def poll(self, after: tuple[InputOffset, ...], wait_s: float) -> tuple[InputOffset, ...]:
        """Offsets, one per input, up to which a batch may now be planned; equal to ``after`` where there is no news.

        Returns on the first news on any input, or after ``wait_s`` seconds; holds back news while the operator's outbox is
        full. The span is bounded in bytes.
        """
        ...

    async def fetch(self, position: int, after_frame: int, upto_frame: int) -> list[Frame]:
        """The frames (after_frame, upto_frame] of input ``position``; waits for them where a restart has to resend them."""
        ...

    async def write(self, batch: int, offsets: tuple[InputOffset, ...], drafts: list[FrameDraft]) -> None:
        """Stores the output of a batch in one transaction: dropped where the batch is visible, replacing it where not.

        Raises :class:`sbon_node.errors.SbonError` (``disk-full``, ``frame-too-large``): the operator then stops with that
        reason, uncommitted, and loses nothing.
        """
        ...

    async def committed(self, batch: int) -> None:
        """``commits/batch`` exists: everything up to it becomes visible and its inputs are acknowledged."""
        ...


OperatorState = Literal["starting", "running", "stopped", "failed"]
OnOperatorState = Callable[[str, OperatorState, str], None]
"""Told operator id, its new state, and the reason where it failed."""


class Engine(Protocol):
    """Runs operators on this node."""

    @property
    def status(self) -> str:
        """``idle``, ``starting``, ``running`` or ``failed: reason``."""
        ...

    @property
    def starts(self) -> int:
        """How often its process has been started since this node was; each but the first followed a death."""
        ...

    async def analyse(self, fragment: str, inputs: tuple[Schema, ...]) -> Schema:
        """The fragment's output schema by the engine's own analyser on empty views; raises :class:`SbonError` with line and
        column. Nothing of the fragment is run."""
        ...

    async def instantiate(self, spec: OperatorSpec, port: OperatorPort, checkpoint: Path) -> None:
        """Starts the operator from its checkpoint folder (new, or left by an earlier run); returns once it is running."""
        ...

    async def destroy(self, operator: str) -> None:
        """Stops the operator after a committed batch; its checkpoint stays where it is. Unknown ids are ignored."""
        ...

    async def export_state(self, operator: str) -> Path:
        """Stops the operator and returns the checkpoint folder another node can resume from."""
        ...

    def stats(self, operator: str) -> OperatorStats: ...

    async def close(self) -> None:
        """Stops all operators after committed batches, then the engine."""
        ...


class EngineCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What this node's engine can take on; ``operators`` caps how many may run (measured: ten share a JVM well)."""

    cores: float
    memory_mb: float
    bandwidth_bytes_s: float
    operators: int = 10
