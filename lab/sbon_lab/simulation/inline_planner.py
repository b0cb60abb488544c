"""The planner of simulated nodes, without a process: planning takes no virtual time."""

from sbon_node.model.measurements import Recall
from sbon_node.planning.process import messages
from sbon_node.planning.process.messages import PlanRequest
from sbon_node.planning.process.planner import Analyse
from sbon_node.planning.process.worker import planned
from sbon_node.planning.sql.checks.allowlist import check_fragment
from sbon_node.planning.sql.settings import QuerySettings
from sbon_protocol.api.plan import ProposedPlan


class InlinePlanner:
    """Planner on the event loop: for virtual time, in which planning takes no time."""

    def __init__(self, settings: QuerySettings) -> None:
        self._settings = settings

    async def plan(self, request: PlanRequest, analyse: Analyse, recall: Recall) -> ProposedPlan:
        try:
            return await planned(request, analyse, self._settings, recall)
        except RecursionError:
            raise messages.too_deep(self._settings) from None

    async def check_fragment(self, fragment: str, inputs: int) -> None:
        try:
            check_fragment(fragment, inputs, self._settings)
        except RecursionError:
            raise messages.too_deep(self._settings) from None

    async def close(self) -> None:
        pass
