"""The checks of an operator that is to run on this node, and the capacity that it gets."""

from __future__ import annotations

from collections.abc import Callable, Container

from sbon_node.errors import SbonError
from sbon_node.hosting.capacity import Reservations
from sbon_node.hosting.hosted_operator import HostedOperator
from sbon_node.model.nodes import CapacityUse
from sbon_node.model.operators import OperatorSpec
from sbon_node.net.peers import Caller
from sbon_node.planner.planner import CLIENT
from sbon_node.workflow.context import Context


class OperatorChecks:
    """Admits operators beside those that are ``hosted``, until it ``is_closed``."""

    def __init__(self, context: Context, reservations: Reservations, hosted: Container[str]) -> None:
        self._context, self._reservations, self._hosted = context, reservations, hosted
        self._checked: dict[str, None] = {}
        self.is_closed = False

    async def admit(
        self, hosted: HostedOperator, caller: Caller, holder: str, use: CapacityUse, store: Callable[[], None]
    ) -> None:
        """Reserve and hold capacity for an operator that may come, after the same checks as for a new one, and ``store`` it."""
        spec, now = hosted.spec, self._context.clock.now()
        self.check_open()
        self._check_new(spec.id)
        deadline = now + self._context.settings.reservation_s
        self._reservations.reserve(spec.id, spec.needs, now, deadline, hosted.submitter, holder=holder, use=use)
        try:
            await self.confirm(hosted, caller)
            store()
        except BaseException:
            self._reservations.release(spec.id, hosted.submitter)
            raise

    async def confirm(self, hosted: HostedOperator, caller: Caller) -> None:
        """Check an operator for which capacity is reserved, and hold the capacity until it ends here."""
        spec = hosted.spec
        self.check_open()
        if len(spec.inputs) > self._context.settings.max_inputs:
            raise SbonError("too-many-inputs", f"{len(spec.inputs)} inputs", where=spec.id, hint="raise control.max_inputs")
        if spec.id in self._checked:
            raise SbonError("operator-exists", f"{spec.id} runs here already", where=self._context.name)
        self._check_new(spec.id)
        self._reservations.check(spec.id, spec.needs, self._context.clock.now(), hosted.submitter)
        await self._check_fragment(spec, caller)
        self.check_open()
        self._check_new(spec.id)
        self._reservations.confirm(spec.id, spec.needs, self._context.clock.now(), hosted.submitter)

    def check_open(self) -> None:
        """Raise ``node-away`` or ``node-drained`` if this node takes no operators."""
        if self.is_closed:
            raise SbonError("node-away", "this node is going away", where=self._context.name)
        self._context.drained.check()

    def _check_new(self, operator: str) -> None:
        if operator in self._hosted:
            raise SbonError("operator-exists", f"{operator} runs here already", where=self._context.name)

    async def _check_fragment(self, spec: OperatorSpec, caller: Caller) -> None:
        """Check the fragment against the allow-list.

        Each reservation allows one check at a time, which bounds the number of waiting checks.
        """
        CLIENT.set(caller.node)
        self._checked[spec.id] = None
        try:
            await self._context.planner.check_fragment(spec.fragment, len(spec.views()))
        finally:
            del self._checked[spec.id]
