"""Assembles the owners of components: registers at several nodes, the catalogue, and the owners that they name."""

import math
from typing import NamedTuple

from sbon_node.context import Context
from sbon_node.ownership.acceptors import RecordAcceptors
from sbon_node.ownership.catalogue import Catalogue
from sbon_node.ownership.operators import OperatorRegisters
from sbon_node.ownership.queries import Records
from sbon_node.ownership.sources import SourceRegisters
from sbon_node.ownership.store.acceptor_store import AcceptorStore
from sbon_node.ownership.store.registers import Registers
from sbon_node.ownership.store.repair import Repair


class Ownership(NamedTuple):
    """The parts that read and change registers."""

    acceptors: AcceptorStore
    """The copies of registers that this node keeps."""
    registers: Registers
    repair: Repair
    catalogue: Catalogue
    record_acceptors: RecordAcceptors
    """Asks the nodes that keep the record of a query."""
    records: Records
    operators: OperatorRegisters
    sources: SourceRegisters


def assemble(context: Context) -> Ownership:
    """Build the parts, of which none runs yet."""
    acceptors = AcceptorStore(context)
    registers = Registers(context, acceptors)
    catalogue = Catalogue(context)

    def distance_ms(node: str) -> float:
        one_way_ms = context.directory.estimate_rtt_ms(context.name, node).one_way_ms
        return math.inf if one_way_ms is None else one_way_ms

    records = Records(acceptors, registers, context.settings.max_queries, distance_ms)
    return Ownership(
        acceptors,
        registers,
        Repair(context, acceptors, registers),
        catalogue,
        RecordAcceptors(context, registers, catalogue.node_of, catalogue.is_detached),
        records,
        OperatorRegisters(context, acceptors, registers, records),
        SourceRegisters(context, registers, catalogue),
    )
