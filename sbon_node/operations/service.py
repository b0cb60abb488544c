"""What whoever runs a node asks of it, beside its queries: figures, readiness, what is wrong with it, draining."""

from __future__ import annotations

from functools import partial

import msgspec

from sbon_node.config import Config
from sbon_node.control.leaving import Leaving
from sbon_node.operations.doctor import Doctor
from sbon_node.operations.draining import Draining
from sbon_node.operations.dumped import Inside
from sbon_node.operations.figures import NodeFigures, Rooms, disk_figures, figures_of
from sbon_node.operations.finding import Examination
from sbon_node.operations.inside import look_inside, tasks
from sbon_node.operations.reach import Reach
from sbon_node.operations.readiness import Condition, Readiness, Reason, readiness_of


class Operations:
    """Implements :class:`sbon_node.api.operations_face.OperationsFace`."""

    def __init__(self, config: Config, rooms: Rooms, leaving: Leaving) -> None:
        self._config, self._rooms = config, rooms
        self._draining = Draining(rooms.context, leaving, rooms.operators, rooms.sources)
        self.reach = Reach(rooms.context)
        self._doctor = Doctor(config, rooms.context, self.reach)

    def figures(self) -> NodeFigures:
        return figures_of(self._rooms)

    def readiness(self) -> Readiness:
        rooms, membership = self._rooms, self._rooms.context.membership
        try:
            disk = disk_figures(rooms.context.data_dir)
        except OSError as error:
            gone = f"the data directory cannot be used: {error}"
            return Readiness(ready=False, reasons=(Reason(code="data-dir", weight="unready", message=gone),))
        operators = [described for _, described in rooms.operators.all()]
        lost = any(member.state in ("away", "dead") for member in membership.members())
        return readiness_of(
            Condition(
                engine=rooms.engine.status,
                free_bytes=disk.free_bytes,
                free_inodes=disk.free_inodes,
                alone=not membership.others_alive and (lost or bool(self._config.node.join)),
                drained=bool(rooms.context.drained),
                failed=tuple(
                    [f"{one.id}: {one.reason}" for one in operators if one.state == "failed"]
                    + [f"{one.source.id}: {one.state}" for one in rooms.sources.reports() if one.state.startswith("failed")]
                ),
                waiting=tuple(f"{one.id}: {one.reason}" for one in operators if one.state == "starting" and one.reason),
            )
        )

    async def examine(self) -> Examination:
        """Raises ``examination-under-way``."""
        return await self._doctor.examine(self.readiness())

    async def inside(self) -> Inside:
        context = self._rooms.context
        found = await context.blocking(partial(look_inside, self._config, context.data_dir))
        return msgspec.structs.replace(found, tasks=tasks())

    def drain(self) -> None:
        """Raises ``node-in-use``."""
        self._draining.drain()
