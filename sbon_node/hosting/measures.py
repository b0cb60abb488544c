"""The measures of this node's operators, kept over restarts and handed over when an operator moves (docs/design/measures.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog

from sbon_node.engine.checkpoint_copy import copied_bytes
from sbon_node.errors import SbonError
from sbon_node.hosting.capacity import measured_cost
from sbon_node.hosting.sweep import checkpoint_of
from sbon_node.model.measures import MeasureSums
from sbon_node.model.operators import Needs, OperatorSpec
from sbon_node.streams.measures.meter import OperatorMeter
from sbon_node.streams.port import NodePort
from sbon_node.workflow.context import Context
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError

log = structlog.get_logger()


class KeptMeasures:
    """Meters for the open ``ports``, and their sums in the store. Nothing depends on them: a full disk only makes them older."""

    def __init__(self, context: Context, ports: Mapping[str, NodePort], speed: float) -> None:
        self._context, self._ports, self._speed = context, ports, speed
        self._taken: dict[str, MeasureSums] = {}
        """Sums that came with operators whose ports are not open yet."""
        self._kept: dict[str, int] = {}
        """The newest batch whose sums are stored, by operator."""

    def meter(self, spec: OperatorSpec, *, follows: bool) -> OperatorMeter:
        """Return a meter for an operator that starts here, with the sums of earlier runs unless it ``follows`` another host."""
        return OperatorMeter(
            [one.stream for one in spec.inputs],
            half_life_s=self._context.stream_settings.measures_half_life_s,
            speed=self._speed,
            sums=None if follows else self.sums(spec.id),
        )

    def cost(self, operator: str, needs: Needs) -> Needs:
        """Return what an operator takes here, by its measures, and by its estimated ``needs`` until it has run for long."""
        port = self._ports.get(operator)
        if port is None:
            return needs
        half_life_s = self._context.stream_settings.measures_half_life_s
        return measured_cost(needs, port.measures(), speed=self._speed, half_life_s=half_life_s)

    def sums(self, operator: str) -> MeasureSums | None:
        """Return the newest sums of an operator, whether it runs or not; None where there are none."""
        port = self._ports.get(operator)
        if port is not None:
            return port.meter.sums(self._context.clock.now())
        if operator in self._taken:
            return self._taken[operator]
        try:
            return self._context.store.get("measures", operator, MeasureSums)
        except SbonError as error:
            log.warning("measures-unreadable", operator=operator, reason=str(error))
            return None

    def take(self, operator: str, value: Any) -> None:
        """Go on with sums that another host has measured; count and ignore impossible ones, which must not stop a move."""
        if value is None:
            return
        try:
            sums: MeasureSums = decode_record(value, MeasureSums)
        except ProtocolError as error:
            self._context.counters.refuse("measures-refused", operator=operator, reason=str(error))
            return
        port = self._ports.get(operator)
        if port is not None:
            port.meter.restore(sums)
        else:
            self._taken[operator] = sums

    async def run(self) -> None:
        """Store the sums, and look how large the checkpoints are, every ``control.measure_interval_s``."""
        while True:
            await self._context.clock.sleep(self._context.settings.measure_interval_s)
            for operator, port in list(self._ports.items()):
                self.keep(operator, port)
                try:
                    await self._weigh(operator, port)
                except SbonError as error:  # It has ended since.
                    log.info("state-not-weighed", operator=operator, reason=str(error))

    def keep(self, operator: str, port: NodePort) -> None:
        """Store an operator's sums, if it has run a batch since it last did."""
        newest = port.meter.newest
        if newest < 0 or self._kept.get(operator) == newest:
            return
        try:
            self._context.store.put("measures", operator, port.meter.sums(self._context.clock.now()))
        except SbonError as error:
            log.info("measures-not-stored", operator=operator, reason=str(error))
            return
        self._kept[operator] = newest

    async def _weigh(self, operator: str, port: NodePort) -> None:
        batch = port.visible_batch()
        if batch >= 0:
            size = await self._context.executor(partial(copied_bytes, checkpoint_of(self._context, operator), batch))
            port.meter.state_bytes = port.meter.state_bytes if size is None else size
        await asyncio.sleep(0)

    def opened(self, operator: str) -> None:
        """The operator's port is open, with its sums."""
        self._taken.pop(operator, None)

    def forget(self, operator: str) -> None:
        """Forget an operator that has ended or left."""
        self._taken.pop(operator, None)
        self._kept.pop(operator, None)
        self._context.store.delete("measures", operator)
