"""Options of the connector ``mqtt`` and their checks, apart from the source, whose library takes memory."""

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_node.connectors.access.endpoints import Endpoint, has_secret_channel, no_cleartext, read_endpoint
from sbon_node.connectors.formats.text_format import Delimiter, Null, Pattern, RowFormat, Stamp, TimestampFormat
from sbon_node.connectors.settings import ConnectorSettings
from sbon_protocol.errors import SbonError

PORTS = {"mqtt": 1883, "mqtts": 8883}


class MqttOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the connector ``mqtt``."""

    url: Annotated[str, Meta(min_length=1, max_length=4096)]
    """mqtt://USER@HOST:PORT, or mqtts:// for TLS"""
    password: Annotated[str, Meta(max_length=256)] = ""
    """of the user: env:SBON_SECRET_NAME or file:NAME, read by the source's node"""
    topic: Annotated[str, Meta(min_length=1, max_length=4096)]
    """topics, with + for one level and # for all that follow"""
    format: RowFormat = "ndjson"
    """of a message: ndjson (an object, or one a line), csv without names, or text"""
    topic_column: Annotated[str, Meta(max_length=255)] = ""
    """the column that gets the topic"""
    pattern: Pattern = ""
    delimiter: Delimiter = ""
    null: Null = ""
    timestamp_format: TimestampFormat = ""
    stamp: Stamp = False
    max_payload_bytes: Annotated[int, Meta(ge=1, le=2**24)] = 2**20
    """largest message in bytes; a larger one is bad, one eight times as large never comes"""
    in_flight: Annotated[int, Meta(ge=1, le=65_535)] = 1000
    """messages the broker sends before the first of them is acknowledged"""
    session_s: Annotated[int, Meta(ge=0, le=2**32 - 2)] = 86_400
    """seconds the broker keeps messages while the node is not connected"""
    keepalive_s: Annotated[int, Meta(ge=5, le=3600)] = 15
    """seconds of silence after which the broker is asked if it lives"""


def check_mqtt(options: MqttOptions, settings: ConnectorSettings) -> Endpoint:
    """Check the options; raise ``bad-option``, ``outside-endpoints``."""
    endpoint = read_endpoint(options.url, PORTS, settings, password=options.password)
    if endpoint.password and endpoint.scheme == "mqtt" and not has_secret_channel(endpoint.host, endpoint.port, settings):
        raise no_cleartext("options.url", "use mqtts://, or name the host in connectors.cleartext")
    if endpoint.path.strip("/") or endpoint.query:
        message = "the URL has more than a host and a port"
        raise SbonError("bad-option", message, where="options.url", hint="name the topic in topic")
    levels = options.topic.split("/")
    if "\0" in options.topic or "#" in levels[:-1] or any(len(level) > 1 and set(level) & {"#", "+"} for level in levels):
        hint = "for instance sensors/+/temperature or sensors/#"
        raise SbonError("bad-option", "not a valid topic filter: + and # replace whole levels", where="options.topic", hint=hint)
    return endpoint
