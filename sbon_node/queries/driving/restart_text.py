"""Words for a restart of a query from its sources, and the sink to which its rows go then."""

from __future__ import annotations

import re
from pathlib import PurePath

import msgspec

from sbon_node.model.records import QueryRecord
from sbon_protocol.api.delivery import FOLLOW
from sbon_protocol.api.queries import SinkSpec

FILE, STREAM = "file", "stream"
MAX_STREAM_NAME = 63
_EARLIER = re.compile(r"\.restart\d+$")
_EARLIER_STREAM = re.compile(r"_restart\d+$")


def restart_text(record: QueryRecord) -> str:
    """Return for users whether the query begins, or has begun, anew; empty if it does neither."""
    if record.restart_due:
        return "begins anew from its sources as soon as it can"
    if record.restarted_as:
        return f"has begun anew from its sources as {record.restarted_as}"
    if record.restarted_from:
        return f"has begun anew from its sources in place of {record.restarted_from}: {_rows(record.sink)}"
    return ""


def _rows(sink: SinkSpec) -> str:
    if sink.kind == FILE:
        return f"all rows are in {sink.options['path']}, a new file; those of before are in the old one, too"
    if sink.kind == STREAM:
        return f"all rows are in the stream {sink.options['stream']}, a new one; those of before are in the old one, too"
    if sink.kind == FOLLOW:
        return "followers get the rows again that they had before"
    return f"the sink ({sink.kind}) gets the rows again that it had before"


def sink_of_restart(sink: SinkSpec, restarts: int) -> SinkSpec:
    """Return the sink of a query that begins anew.

    A file or stream is a new one: ``rows.csv`` is followed by ``rows.restart1.csv``, ``late`` by ``late_restart1``.
    """
    if sink.kind == STREAM:
        suffix = f"_restart{restarts}"
        stream = _EARLIER_STREAM.sub("", sink.options["stream"])[: MAX_STREAM_NAME - len(suffix)] + suffix
        return msgspec.structs.replace(sink, options={**sink.options, "stream": stream})
    if sink.kind != FILE:
        return sink
    path = PurePath(sink.options["path"])
    name = f"{_EARLIER.sub('', path.stem)}.restart{restarts}{path.suffix}"
    return msgspec.structs.replace(sink, options={**sink.options, "path": str(path.with_name(name))})
