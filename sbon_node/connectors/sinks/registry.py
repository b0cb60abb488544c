"""Registry of sinks, built in and of other packages (:mod:`sbon_node.connectors.installed`)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sbon_node.connectors import installed
from sbon_node.connectors.access.secrets import check_no_secrets
from sbon_node.connectors.interface import Sink
from sbon_node.connectors.options import read_options
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks import file
from sbon_node.connectors.sinks.blackhole import BlackholeOptions, open_blackhole
from sbon_node.connectors.sinks.context import SinkContext
from sbon_node.connectors.sinks.delivery_position import DeliveryPositionFile
from sbon_node.connectors.sinks.file import FileSink, FileSinkOptions
from sbon_node.connectors.sinks.http import HttpSinkOptions, check_http, open_http, reach_http
from sbon_node.connectors.sinks.postgres_options import PostgresOptions, check_postgres
from sbon_node.connectors.sinks.results import STREAM, StreamSinkOptions
from sbon_node.connectors.sinks.stream import check_stream_sink, open_stream_sink, withdraw_stream_sink
from sbon_protocol.api.delivery import FOLLOW as FOLLOW
from sbon_protocol.errors import SbonError, did_you_mean


@dataclass(frozen=True, slots=True)
class SinkFailover:
    """How another node takes a sink over from one that is lost.

    ``reach`` raises unless this node could go on with the sink; it changes nothing. ``release`` removes what a former host has
    kept of the sink at itself alone, once another node has it.
    """

    reach: Callable[[SinkContext, Any], Awaitable[None]]
    release: Callable[[SinkContext, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SinkConnector:
    """A kind of sink.

    ``check`` raises the errors visible at submission and touches nothing. ``open`` makes the files or tables that the claim of a
    fresh sink needs, or resumes them, and leaves nothing new if it raises. ``withdraw`` removes everything made under the claim:
    delivered results too, or only a result without deliveries. It may be repeated. Without ``failover`` the sink cannot move.
    """

    options: type[msgspec.Struct]
    check: Callable[[Any, ConnectorSettings], object]
    open: Callable[[SinkContext, Any], Awaitable[Sink]]
    withdraw: Callable[[SinkContext, Any, bool], Awaitable[None]]
    failover: SinkFailover | None = None


async def _open_file(context: SinkContext, options: FileSinkOptions) -> Sink:
    return await context.executor(
        lambda: FileSink(
            options,
            context.schema,
            context.executor,
            context.failpoint,
            claim=context.claim,
            fresh=context.fresh,
            roots=context.settings.data_roots,
        )
    )


async def _withdraw_file(context: SinkContext, options: FileSinkOptions, delivered: bool) -> None:
    roots = context.settings.data_roots
    await context.executor(lambda: file.withdraw(options, context.claim, delivered=delivered, roots=roots))


async def withdraw_position(context: SinkContext, options: object, delivered: bool = False) -> None:
    """Remove the stored position of a sink whose results are elsewhere; delivered results stay there."""
    await context.executor(DeliveryPositionFile(context.data_dir, context.claim).remove)


async def _open_postgres(context: SinkContext, options: PostgresOptions) -> Sink:
    from sbon_node.connectors.sinks.postgres import open_postgres

    return await open_postgres(context, options)


async def _withdraw_postgres(context: SinkContext, options: PostgresOptions, delivered: bool) -> None:
    from sbon_node.connectors.sinks.postgres import withdraw_postgres

    await withdraw_postgres(context, options, delivered)


async def _reach_postgres(context: SinkContext, options: PostgresOptions) -> None:
    from sbon_node.connectors.sinks.postgres import reach_postgres

    await reach_postgres(context, options)


async def _release_nothing(context: SinkContext, options: object) -> None:
    """Release nothing: all of the sink is where its present host needs it."""


SINKS: dict[str, SinkConnector] = {
    "file": SinkConnector(FileSinkOptions, file.check_file, _open_file, _withdraw_file),
    "http": SinkConnector(HttpSinkOptions, check_http, open_http, withdraw_position, SinkFailover(reach_http, withdraw_position)),
    "postgres": SinkConnector(
        PostgresOptions, check_postgres, _open_postgres, _withdraw_postgres, SinkFailover(_reach_postgres, _release_nothing)
    ),
    STREAM: SinkConnector(StreamSinkOptions, check_stream_sink, open_stream_sink, withdraw_stream_sink),
    "blackhole": SinkConnector(BlackholeOptions, lambda options, settings: None, open_blackhole, withdraw_position),
}


def check_sink(kind: str, options: Mapping[str, Any], settings: ConnectorSettings, *, failover: bool = False) -> None:
    """Check a sink's options at submission, and whether another node could take it over if it is to have ``failover``.

    Raises ``unknown-sink``, ``unknown-option``, ``bad-option``, ``outside-roots``, ``outside-endpoints``, ``sink-exists``,
    ``literal-secret``, ``no-failover``.
    """
    if failover and (kind == FOLLOW or _named(kind).failover is None):
        can = ", ".join(sorted(name for name, one in SINKS.items() if one.failover is not None))
        message = f"no other node can take over the sink {kind}, whose result or position is at its node"
        raise SbonError("no-failover", message, where="sink.failover", hint=f"sinks that can be taken over: {can}")
    if kind == FOLLOW:
        if options:
            raise SbonError("unknown-option", "following takes no options", where=f"options.{sorted(options)[0]}")
        return
    check_no_secrets(options)
    connector, read = _read(kind, options)
    connector.check(read, settings)


async def open_sink(kind: str, options: Mapping[str, Any], context: SinkContext) -> Sink:
    """Open the sink; unless ``fresh``, resume it at its delivery position.

    Raises ``sink-exists`` if the target is there, ``sink-lost`` if the earlier result is missing; it leaves nothing new then.
    """
    connector, read = _read(kind, options)
    return await connector.open(context, read)


async def withdraw_sink(kind: str, options: Mapping[str, Any], context: SinkContext, *, delivered: bool) -> None:
    """Remove everything that :func:`open_sink` made under the claim.

    With ``delivered`` it removes delivered results too, otherwise only a result without deliveries. It may be repeated.
    """
    if kind != FOLLOW:
        connector, read = _read(kind, options)
        await connector.withdraw(context, read, delivered)


async def reach_sink(kind: str, options: Mapping[str, Any], context: SinkContext) -> None:
    """Raise unless this node could go on with the sink of another node; change nothing. The sink's kind has a failover."""
    connector, read = _read(kind, options)
    if connector.failover is not None:
        await connector.failover.reach(context, read)


async def release_sink(kind: str, options: Mapping[str, Any], context: SinkContext) -> None:
    """Remove what this node alone has kept of a sink that another node has taken over; it may be repeated."""
    connector, read = _read(kind, options)
    if connector.failover is not None:
        await connector.failover.release(context, read)


def _read(kind: str, options: Mapping[str, Any]) -> tuple[SinkConnector, msgspec.Struct]:
    connector = _named(kind)
    return connector, read_options(connector.options, options, kind)


def _named(kind: str) -> SinkConnector:
    connector = SINKS.get(kind) or installed.installed(installed.SINKS, kind, SinkConnector)
    if connector is None:
        known = [FOLLOW, *SINKS, *installed.names(installed.SINKS)]
        hint = did_you_mean(kind, known, f"known: {', '.join(known)}")
        raise SbonError("unknown-sink", f"there is no sink {kind!r}", where="sink.kind", hint=hint)
    return connector
