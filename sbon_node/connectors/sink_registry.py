"""Which sinks there are: a name, the struct of its options, and how one is checked, opened and withdrawn. Packages may bring
others (:mod:`sbon_node.connectors.installed`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sbon_node.connectors import file_sink, installed
from sbon_node.connectors.blackhole_sink import BlackholeOptions, open_blackhole
from sbon_node.connectors.delivered import FOLLOW as FOLLOW
from sbon_node.connectors.file_sink import FileSink, FileSinkOptions
from sbon_node.connectors.http_sink import HttpSinkOptions, check_http, open_http
from sbon_node.connectors.interface import Sink
from sbon_node.connectors.options import read_options
from sbon_node.connectors.postgres_options import PostgresOptions, check_postgres
from sbon_node.connectors.roots import check_within
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sink_context import SinkContext
from sbon_node.connectors.stated import StatedFile
from sbon_node.errors import SbonError


@dataclass(frozen=True, slots=True)
class SinkConnector:
    """``check`` raises what can be refused at submission and touches nothing; ``open`` makes what the claim of a fresh sink
    needs, or takes it up, and leaves nothing new where it raises; ``withdraw`` removes what was made under the claim: what was
    delivered as well, or else only where nothing was. It may be repeated."""

    options: type[msgspec.Struct]
    check: Callable[[Any, ConnectorSettings], object]
    open: Callable[[SinkContext, Any], Awaitable[Sink]]
    withdraw: Callable[[SinkContext, Any, bool], Awaitable[None]]


def _check_file(options: FileSinkOptions, settings: ConnectorSettings) -> None:
    check_within(options.path, settings.data_roots)
    file_sink.check_options(options)


async def _open_file(context: SinkContext, options: FileSinkOptions) -> Sink:
    return await context.blocking(
        lambda: FileSink(options, context.schema, context.blocking, context.steps, claim=context.claim, fresh=context.fresh)
    )


async def _withdraw_file(context: SinkContext, options: FileSinkOptions, delivered: bool) -> None:
    await context.blocking(lambda: file_sink.withdraw(options, context.claim, delivered=delivered))


async def withdraw_stated(context: SinkContext, options: object, delivered: bool) -> None:
    """Of sinks whose results are elsewhere: what was delivered stays there."""
    await context.blocking(StatedFile(context.data_dir, context.claim).remove)


async def _open_postgres(context: SinkContext, options: PostgresOptions) -> Sink:
    from sbon_node.connectors.postgres_sink import open_postgres

    return await open_postgres(context, options)


async def _withdraw_postgres(context: SinkContext, options: PostgresOptions, delivered: bool) -> None:
    from sbon_node.connectors.postgres_sink import withdraw_postgres

    await withdraw_postgres(context, options, delivered)


SINKS: dict[str, SinkConnector] = {
    "file": SinkConnector(FileSinkOptions, _check_file, _open_file, _withdraw_file),
    "http": SinkConnector(HttpSinkOptions, check_http, open_http, withdraw_stated),
    "postgres": SinkConnector(PostgresOptions, check_postgres, _open_postgres, _withdraw_postgres),
    "blackhole": SinkConnector(BlackholeOptions, lambda options, settings: None, open_blackhole, withdraw_stated),
}


def check_sink(kind: str, options: Mapping[str, Any], settings: ConnectorSettings) -> None:
    """What can be refused at submission is: ``unknown-sink``, ``unknown-option``, ``bad-option``, ``outside-roots``,
    ``outside-endpoints``, ``sink-exists``."""
    if kind == FOLLOW:
        if options:
            raise SbonError("unknown-option", "following takes no options", where=f"options.{sorted(options)[0]}")
        return
    connector = _named(kind)
    connector.check(read_options(connector.options, options, kind), settings)


async def open_sink(kind: str, options: Mapping[str, Any], context: SinkContext) -> Sink:
    """The sink, as far as it got before unless ``fresh``; raises ``sink-exists`` where something is there already,
    ``sink-lost`` where what was there is gone, and leaves nothing new then."""
    connector = _named(kind)
    return await connector.open(context, read_options(connector.options, options, kind))


async def withdraw_sink(kind: str, options: Mapping[str, Any], context: SinkContext, *, delivered: bool) -> None:
    """Removes what :func:`open_sink` made under the claim: what was ``delivered`` as well, or else only where nothing was. It may
    be repeated."""
    if kind != FOLLOW:
        connector = _named(kind)
        await connector.withdraw(context, read_options(connector.options, options, kind), delivered)


def _named(kind: str) -> SinkConnector:
    connector = SINKS.get(kind) or installed.installed(installed.SINKS, kind, SinkConnector)
    if connector is None:
        known = ", ".join([FOLLOW, *SINKS, *installed.names(installed.SINKS)])
        raise SbonError("unknown-sink", f"there is no sink {kind!r}", where="sink.kind", hint=f"known: {known}")
    return connector
