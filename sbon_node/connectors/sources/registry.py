"""Registry of sources, built in and of other packages (:mod:`sbon_node.connectors.installed`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sbon_node.base.clock import Clock
from sbon_node.connectors import installed
from sbon_node.connectors.interface import Source
from sbon_node.connectors.options import read_options
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.context import SourceContext as SourceContext
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
class Connector:
    """A kind of source.

    ``options`` is a struct whose fields carry descriptions; ``make`` takes the context and the parsed options. A source ``moves``
    if another node may go on with it from its position: its rows do not come from the node itself. ``ends`` tells from the given
    options whether it may end by itself, where its node does not answer.
    """

    options: type[msgspec.Struct]
    make: Callable[[SourceContext, Any], Source]
    moves: bool = False
    ends: Callable[[Mapping[str, Any]], bool] = lambda options: True


def _mqtt(context: SourceContext, options: MqttOptions) -> Source:
    from sbon_node.connectors.sources.mqtt import MqttSource

    return MqttSource(context, options)


SOURCES: dict[str, Connector] = {
    "file": Connector(FileOptions, FileSource),
    "tail": Connector(TailOptions, TailSource, ends=lambda options: False),
    "http": Connector(HttpSourceOptions, HttpSource, moves=True, ends=lambda options: False),
    "mqtt": Connector(MqttOptions, _mqtt, moves=True, ends=lambda options: False),
    "generator": Connector(GeneratorOptions, GeneratorSource, moves=True, ends=lambda options: bool(options.get("rows"))),
    QUERY: Connector(ResultOptions, lambda _, options: ResultSource(options)),
    "hostmetrics": Connector(HostMetricsOptions, HostMetricsSource, ends=lambda options: False),
}


def may_end(source: SourceDeclaration) -> bool:
    """Whether a source may end by itself, as far as its declaration tells."""
    connector = SOURCES.get(source.connector)
    return connector is None or connector.ends(source.options)


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
