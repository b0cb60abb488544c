"""Source ``mqtt``: messages of a broker (MQTT 5), at least once.

It receives with QoS 1 in a session that the broker keeps while the node is disconnected, and acknowledges a message only when its
rows are stored. So every published message is stored, as far as its publisher uses QoS 1 and the broker keeps it. A message
repeats if the connection breaks, or the node dies, between storing and acknowledging it.
"""

from __future__ import annotations

import secrets
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any

import aiomqtt
import msgspec
import pyarrow as pa
import structlog
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from sbon_node.base.connecting import reason_of
from sbon_node.connectors.access.permitted import checked_addresses
from sbon_node.connectors.formats.blocks import Parsed
from sbon_node.connectors.formats.text_format import Arrival, RowFormat, text_format
from sbon_node.connectors.interface import AWAY, BadRow, Chunk, Receipt
from sbon_node.connectors.sources.context import SourceContext
from sbon_node.connectors.sources.mqtt_options import MqttOptions, check_mqtt
from sbon_protocol.errors import SbonError

log = structlog.get_logger()

CONNECT_S = 10.0
GOODBYE_S = 2.0
PACKET_FACTOR = 8
"""Factor between the message limit and the largest packet that the broker may send.

The node can refuse a message only after it has arrived.
"""
MOST_WAITING = 2 * 65_535
"""Messages that may wait to be read; further messages are dropped.

QoS 1 has only so many packet numbers, even for a broker that exceeds ``in_flight``: dropped ones have QoS 0.
"""
REFUSED = 0x80
"""The lowest reason code of a refusal."""


class MqttPosition(msgspec.Struct, frozen=True, kw_only=True):
    """``client`` names the session at the broker; ``messages`` counts those read."""

    client: str
    messages: int = 0


class MqttSource:
    """MQTT source. See :class:`sbon_node.connectors.interface.Source` and :class:`sbon_node.connectors.interface.Confirmed`."""

    finite = False
    waits = False

    def __init__(self, context: SourceContext, options: MqttOptions) -> None:
        schema, event_time = context.schema, context.stream.event_time
        self._options, self._schema, self._settings = options, schema, context.settings
        self._endpoint = check_mqtt(options, context.settings)
        stamped = options.stamp or (options.format == "text" and f"(?P<{event_time}>" not in options.pattern)
        inner = schema
        if options.topic_column:
            index = schema.get_field_index(options.topic_column)
            if index < 0 or not pa.types.is_string(schema.field(index).type):
                message = f"the stream has no text column {options.topic_column!r}"
                raise SbonError("bad-option", message, where="options.topic_column")
            inner = schema.remove(index)
        self._format = text_format(
            options.format,
            inner,
            header=False,
            delimiter=options.delimiter,
            null=options.null,
            timestamp_format=options.timestamp_format,
            pattern=options.pattern,
            added={event_time: Arrival(context.clock.wall_ms)} if stamped else None,
        )
        self._at = MqttPosition(client="")
        self._told = False
        self._tried = -1
        self._client: _Client | None = None
        self._unacknowledged: deque[tuple[_Client | None, list[int]]] = deque()

    def check(self) -> None:
        """Check the options without the broker, which may be away when a source is attached."""

    async def open(self, position: bytes | None) -> None:
        if position:
            self._at = msgspec.msgpack.decode(position, type=MqttPosition)
        self._told = bool(position)
        if not self._at.client:
            self._at = MqttPosition(client=f"sbon-{secrets.token_hex(8)}")
        endpoint = self._endpoint
        addresses = await checked_addresses(endpoint.host, endpoint.port, self._settings)
        self._tried += 1
        client = self._made(addresses[self._tried % len(addresses)])
        try:
            await client.__aenter__()
            self._client = client
            # The broker sends retained messages only for a new subscription, not after every interruption.
            options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
            granted = await client.subscribe(self._options.topic, options=options)
        except (aiomqtt.MqttError, OSError) as error:
            raise self._away(reason_of(error)) from error
        if any(_code(code) >= REFUSED for code in granted):
            raise self._away(f"the subscription is refused: {granted[0]}")

    async def read(self) -> Chunk | None:
        if not self._told:
            # The session's name is stored before its messages, so that a restart resumes the session.
            self._told = True
            self._unacknowledged.append((None, []))
            return Chunk(self._batch([]).rows, self._position(), self._batch([]).origin)
        client = self._client
        assert client is not None  # opened
        try:
            messages = [await anext(client.messages)]
            size = len(_payload(messages[0]))
            while len(client.messages) and size < self._settings.block_bytes:
                messages.append(await anext(client.messages))
                size += len(_payload(messages[-1]))
        except aiomqtt.MqttError as error:
            raise self._away(reason_of(error)) from error
        parsed = self._batch(messages)
        self._at = msgspec.structs.replace(self._at, messages=self._at.messages + len(messages))
        self._unacknowledged.append((client, [message.mid for message in messages if message.qos]))
        return Chunk(parsed.rows, self._position(), parsed.origin, bad=parsed.bad)

    def stored(self, receipts: Sequence[Receipt]) -> None:
        for _ in receipts:
            client, numbers = self._unacknowledged.popleft() if self._unacknowledged else (None, [])
            if client is not None and client is self._client:
                for number in numbers:
                    client.acknowledge(number)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        self._unacknowledged.clear()
        # The broker answers the unsubscribe in order: a broker that sees the end at once may drop unread acknowledgements.
        for last in (client.unsubscribe(f"{self._at.client}/none", timeout=GOODBYE_S), client.__aexit__(None, None, None)):
            try:
                await last
            except aiomqtt.MqttError as error:
                log.debug("mqtt-gone", reason=str(error))
        client.look_at_the_end()

    def _made(self, address: str) -> _Client:
        options, endpoint = self._options, self._endpoint
        limits = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        limits.SessionExpiryInterval = options.session_s
        limits.ReceiveMaximum = options.in_flight
        limits.MaximumPacketSize = min(PACKET_FACTOR * options.max_payload_bytes, 2**28)
        return _Client(
            address,
            endpoint.port,
            username=endpoint.user or None,
            password=endpoint.password or None,
            identifier=self._at.client,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=False,
            properties=limits,
            timeout=CONNECT_S,
            keepalive=options.keepalive_s,
            max_queued_incoming_messages=MOST_WAITING,
            tls_context=_named_context(endpoint.host) if endpoint.scheme == "mqtts" else None,
        )

    def _batch(self, messages: list[aiomqtt.Message]) -> Parsed:
        """Return the rows of some messages. A row's line is the number of its message since the source was attached."""
        batches: list[pa.RecordBatch] = []
        bad: list[BadRow] = []
        origins: list[tuple[int, str]] = []
        for number, message in enumerate(messages, self._at.messages + 1):
            payload = _payload(message)
            if len(payload) > self._options.max_payload_bytes:
                shown = payload[: self._settings.dead_letter_text_bytes].decode("utf-8", "replace")
                bad.append(BadRow(number, shown, f"a message of {len(payload):,} bytes"))
                continue
            parsed = self._format.parse(as_lines(payload, self._options.format), 1)
            bad += [BadRow(number, row.text, f"{message.topic}: {row.reason}") for row in parsed.bad]
            origins += [(number, parsed.origin(i)[1]) for i in range(parsed.rows.num_rows)]
            batches.append(self._with_topic(parsed.rows, str(message.topic)))
        rows = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], self._schema)
        return Parsed(rows, tuple(bad), lambda i: origins[i])

    def _with_topic(self, rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        if not self._options.topic_column:
            return rows
        columns = {name: rows.column(name) for name in rows.schema.names}
        columns[self._options.topic_column] = pa.array([topic] * rows.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)

    def _position(self) -> bytes:
        return msgspec.msgpack.encode(self._at)

    def _away(self, reason: str) -> SbonError:
        return SbonError(AWAY, reason or "the connection broke", where=str(self._endpoint))


class _Client(aiomqtt.Client):
    """A client that acknowledges a message on request instead of on arrival."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._client.manual_ack_set(True)

    def acknowledge(self, number: int) -> None:
        self._client.ack(number, 1)

    def look_at_the_end(self) -> None:
        """Retrieve the reason of the disconnect. It was reported already; asyncio would warn about an unretrieved exception."""
        if self._disconnected.done() and not self._disconnected.cancelled():
            self._disconnected.exception()


class _NamedContext(ssl.SSLContext):
    """A TLS context that checks the certificate for a name, whatever address was connected to."""

    name = ""

    def wrap_socket(self, *args: Any, **more: Any) -> Any:
        return super().wrap_socket(*args, **{**more, "server_hostname": self.name})


def _named_context(name: str) -> ssl.SSLContext:
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    context.name = name
    return context


def _payload(message: aiomqtt.Message) -> bytes:
    return bytes(message.payload)


def as_lines(payload: bytes, kind: RowFormat) -> bytes:
    """Return the payload as lines; a message of JSON may spread a value over several lines."""
    if kind == "ndjson" and b"\n" in payload.strip():
        try:
            payload = msgspec.json.format(payload, indent=-1)  # it keeps the digits of numbers
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return payload + b"\n"  # a value per line, or text that the parser will refuse
    return payload + b"\n"


def _code(granted: Any) -> int:
    return int(getattr(granted, "value", granted))
