"""Registry of sources, built in and of other packages (:mod:`sbon_node.connectors.installed`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from sbon_node.base.clock import Clock
from sbon_node.connectors import installed
from sbon_node.connectors.access.roots import check_within
from sbon_node.connectors.interface import Source
from sbon_node.connectors.options import read_options
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.file import FileOptions, FileSource
from sbon_node.connectors.sources.generator import GeneratorOptions, GeneratorSource
from sbon_node.connectors.sources.host_metrics import HostMetricsOptions, HostMetricsSource
from sbon_node.connectors.sources.http import HttpSource, HttpSourceOptions
from sbon_node.connectors.sources.mqtt_options import MqttOptions
from sbon_node.connectors.sources.result import QUERY, ResultOptions, ResultSource
from sbon_node.connectors.sources.tail import TailOptions, TailSource
from sbon_node.model.schema import to_arrow
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.errors import SbonError, did_you_mean


@dataclass(frozen=True, slots=True)
class SourceContext:
    """Inputs of a source: its declarations, the stream's Arrow schema, the settings, and the node's clock."""

    declaration: SourceDeclaration
    stream: StreamDeclaration
    schema: pa.Schema
    settings: ConnectorSettings
    clock: Clock


@dataclass(frozen=True, slots=True)
class Connector:
    """A kind of source.

    ``options`` is a struct whose fields carry descriptions; ``make`` takes the context and the parsed options. A source ``moves``
    if another node may go on with it from its position: its rows do not come from the node itself.
    """

    options: type[msgspec.Struct]
    make: Callable[[SourceContext, Any], Source]
    moves: bool = False


def _file(context: SourceContext, options: FileOptions) -> Source:
    check_within(options.path, context.settings.data_roots)
    return FileSource(options, context.schema, context.stream.event_time, context.settings)


def _generator(context: SourceContext, options: GeneratorOptions) -> Source:
    return GeneratorSource(
        options, context.schema, context.stream.event_time, context.settings, context.declaration.expected_rows_s
    )


def _host_metrics(context: SourceContext, options: HostMetricsOptions) -> Source:
    return HostMetricsSource(options, context.schema, context.declaration.node, context.clock)


def _tail(context: SourceContext, options: TailOptions) -> Source:
    roots = context.settings.data_roots
    event_time = context.stream.event_time
    return TailSource(
        options, context.schema, event_time, context.settings, context.clock, lambda path: check_within(path, roots)
    )


def _http(context: SourceContext, options: HttpSourceOptions) -> Source:
    event_time = context.stream.event_time
    return HttpSource(options, context.schema, event_time, context.settings, context.clock, context.declaration.name)


def _mqtt(context: SourceContext, options: MqttOptions) -> Source:
    from sbon_node.connectors.sources.mqtt import MqttSource

    return MqttSource(options, context.schema, context.stream.event_time, context.settings, context.clock)


SOURCES: dict[str, Connector] = {
    "file": Connector(FileOptions, _file),
    "tail": Connector(TailOptions, _tail),
    "http": Connector(HttpSourceOptions, _http, moves=True),
    "mqtt": Connector(MqttOptions, _mqtt, moves=True),
    "generator": Connector(GeneratorOptions, _generator, moves=True),
    QUERY: Connector(ResultOptions, lambda context, options: ResultSource(options)),
    "hostmetrics": Connector(HostMetricsOptions, _host_metrics),
}


def open_source(
    declaration: SourceDeclaration, stream: StreamDeclaration, settings: ConnectorSettings, clock: Clock | None = None
) -> Source:
    """Return the declared source, not opened yet.

    Raises :class:`SbonError` ``unknown-connector``, ``unknown-option``, ``bad-option``, ``outside-roots``. The source's ``check``
    examines the files and endpoints that the options name.
    """
    connector = _connector(declaration.connector)
    options = read_options(connector.options, declaration.options, declaration.connector)
    return connector.make(SourceContext(declaration, stream, to_arrow(stream.schema), settings, clock or Clock.real()), options)


def check_moves(name: str) -> None:
    """Raise :class:`SbonError` ``source-bound`` for a connector whose rows come from its node itself."""
    if not _connector(name).moves:
        able = ", ".join(one for one, connector in SOURCES.items() if connector.moves)
        message = f"a {name} source cannot go on at another node"
        raise SbonError("source-bound", message, where="durability", hint=f"attach it without; replicated may be: {able}")


def _connector(name: str) -> Connector:
    connector = SOURCES.get(name) or installed.installed(installed.SOURCES, name, Connector)
    if connector is None:
        known = [*(one for one in SOURCES if one != QUERY), *installed.names(installed.SOURCES)]  # users attach no result
        hint = did_you_mean(name, known, f"known: {', '.join(known)}")
        raise SbonError("unknown-connector", f"there is no connector {name!r}", where="connector", hint=hint)
    return connector
