"""An operator's neighbours in its query, with the measured rates of its links: all that its host needs to place it anew."""

from __future__ import annotations

import msgspec

from sbon_node.context import Context
from sbon_node.hosting.operators.host import OperatorHost
from sbon_protocol.api.subscribers import component_of, is_follower
from sbon_protocol.errors import SbonError


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """One link of an operator: ``stream`` comes from ``node``, or with ``reads`` false goes to ``component`` there.

    ``rate_bytes_s`` is measured, None before the first measurement.
    """

    stream: str
    component: str
    node: str
    reads: bool
    rate_bytes_s: float | None


async def neighbours(context: Context, operators: OperatorHost, operator: str) -> tuple[Neighbour, ...]:
    """Return the links of an operator of this node, inputs first; their nodes are those where the others are now.

    Raises :class:`SbonError` ``operator-unknown``, and as :meth:`ReaderHosts.node_of`.
    """
    hosted, measures = operators.get(operator), operators.ports.described(operator)
    if hosted is None or measures is None:
        raise SbonError("operator-unknown", "it does not run here", where=operator)
    spec = operators.ports.present(hosted.spec)
    found = [
        Neighbour(stream=one.stream, component=one.stream, node=one.node, reads=True, rate_bytes_s=read.bytes_s)
        for one, read in zip(spec.inputs, measures.inputs, strict=True)
    ]
    readers = {component_of(name): name for name in context.outbox.link_counts(operator).links if not is_follower(name)}
    for component, subscriber in sorted(readers.items()):
        node = await operators.ports.readers.node_of(hosted, subscriber)
        found.append(Neighbour(stream=operator, component=component, node=node, reads=False, rate_bytes_s=measures.bytes_out_s))
    return tuple(found)
