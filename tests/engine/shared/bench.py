"""An engine that tests share, and its operators, whose names differ from test to test."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sbon_node.base.clock import Clock
from sbon_node.engine.interface import OperatorPort
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from tests.engine.many_port import ManyPort
from tests.engine.states import States

SETTINGS = EngineSettings(jit="c1", max_restarts=1, restart_s=0.1, poll_s=0.2, skipped_rows=20)


class Bench:
    """The engine process is that of :mod:`tests.engine.shared.engine_process`."""

    def __init__(self, folder: Path, settings: EngineSettings = SETTINGS) -> None:
        self.folder, self.states = folder, States()
        self.tried: set[tuple[str, tuple[InputSpec, ...]]] = set()
        self.engine = SparkEngine(settings, folder, Clock.real(), self.states, module="tests.engine.shared.engine_process")

    async def start(self, spec: OperatorSpec, *, port: ManyPort | None = None) -> ManyPort:
        port = port or ManyPort(len(spec.inputs))
        await self.instantiate(spec, port)
        return port

    async def instantiate(self, spec: OperatorSpec, port: OperatorPort) -> None:
        await self.engine.instantiate(spec, port, self.checkpoint(spec.id))

    def checkpoint(self, operator: str) -> Path:
        checkpoint = self.folder / "operators" / operator
        checkpoint.mkdir(parents=True, exist_ok=True)
        return checkpoint

    def tried_before(self, spec: OperatorSpec) -> bool:
        """Whether an operator that does the same has been tried: queries that differ have parts that do not."""
        known, one = len(self.tried), (spec.fragment, tuple(msgspec.structs.replace(i, stream="") for i in spec.inputs))
        self.tried.add(one)
        return len(self.tried) == known

    async def clear(self) -> list[str]:
        """Destroy the operators that are left; return their names."""
        left = sorted(self.engine._running)
        for operator in left:
            await self.engine.destroy(operator)
        return left
