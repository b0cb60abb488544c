"""The status of a node, as ``sbon status`` and the dashboard show it."""

from __future__ import annotations

from importlib.metadata import version

from sbon_node.config.config import Config
from sbon_node.operations.metrics_snapshot import Components
from sbon_node.overlay.space.load import per_core
from sbon_protocol.api.nodes import NodeStatus


def status_of(config: Config, components: Components) -> NodeStatus:
    """Return the present status of the node."""
    context, operators = components.context, components.hosting.operators
    own = context.membership.get(context.name)
    assert own is not None
    coordinate = components.overlay.space.coordinate
    return NodeStatus(
        name=context.name,
        cluster=config.node.cluster,
        address=str(own.address),
        api=str(own.api),
        version=version("sbon"),
        engine=components.hosting.engine.status,
        coordinate=coordinate.vector,
        height=coordinate.height,
        error=coordinate.error,
        load=coordinate.load,
        load_per_core=per_core(coordinate.load, config.space.load_weight_ms),
        members=context.membership.others_alive + 1,
        operators=operators.hosted(),
        capacity=operators.capacity(),
        drained=bool(context.drained),
        ready=own.meta.ready,
        reasons=own.meta.reasons,
        counters=context.counters.snapshot(),
    )
