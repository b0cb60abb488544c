"""Sinks, sources and plans for display: without their credentials."""

import msgspec

from sbon_node.base.redaction import shown
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.plan import Plan
from sbon_protocol.api.queries import SinkSpec


def shown_sink(sink: SinkSpec) -> SinkSpec:
    return msgspec.structs.replace(sink, options=shown(sink.options), claim="")


def shown_source(source: SourceDeclaration) -> SourceDeclaration:
    return msgspec.structs.replace(source, options=shown(source.options))


def shown_plan(plan: Plan) -> Plan:
    sources = tuple(msgspec.structs.replace(planned, source=shown_source(planned.source)) for planned in plan.sources)
    return msgspec.structs.replace(plan, sources=sources)
