"""Bodies that only HTTP uses; the other types are those of the node (``sbon_node/model``)."""

from typing import Annotated

import msgspec
from msgspec import Meta


class JoinBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Addresses of other nodes, ``host:port``; any live one will do."""

    addresses: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]


class AcknowledgeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frame numbers by stream, of the further ``sink`` that the rows name, or of the query's first sink.

    ``reader`` is the word of the event with which the rows began.
    """

    numbers: Annotated[dict[str, Annotated[int, Meta(ge=0, le=2**62)]], Meta(max_length=4096)]
    reader: Annotated[str, Meta(min_length=1, max_length=64)]
    sink: Annotated[str, Meta(max_length=512)] = ""


class MembersQuery(msgspec.Struct, frozen=True, kw_only=True):
    near: Annotated[str, Meta(description="sort by distance from this node")] = ""
    within_ms: Annotated[float, Meta(ge=0, le=1e9, description="only those so near")] | None = None


class LeaveQuery(msgspec.Struct, frozen=True, kw_only=True):
    force: Annotated[bool, Meta(description="leave though queries need the node")] = False


class DoctorQuery(msgspec.Struct, frozen=True, kw_only=True):
    all: Annotated[bool, Meta(description="let all other nodes examine themselves, too")] = False


class DrainQuery(msgspec.Struct, frozen=True, kw_only=True):
    dry_run: Annotated[bool, Meta(description="change nothing: say only where its operators would go")] = False


class RowsQuery(msgspec.Struct, frozen=True, kw_only=True):
    after: Annotated[str, Meta(description='numbers of frames by stream that the reader has, as JSON: {"stream": 7}')] = ""
    sink: Annotated[
        str,
        Meta(
            max_length=512,
            description="id of a further sink to follow, at its node; `any`: one of the reader's own, where the first sink has "
            "another reader or delivers by itself",
        ),
    ] = ""


class PushQuery(msgspec.Struct, frozen=True, kw_only=True):
    source: Annotated[str, Meta(description="the source, where the node has several of the stream that take rows")] = ""


class MachineUsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    after_ms: Annotated[int, Meta(ge=0, le=2**53, description="only points later than that")] = 0


class CancelMoveQuery(msgspec.Struct, frozen=True, kw_only=True):
    operator: Annotated[str, Meta(max_length=512, description="id of the operator, or the part after the query's")]


class QueryUsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    after_ms: Annotated[int, Meta(ge=-1, le=2**53, description="only points of its history later than that; -1 for all")] = -1


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    kinds: Annotated[str, Meta(description="some of membership,placement,queries,logs; empty for all")] = ""
    past: Annotated[int, Meta(ge=0, le=4096, description="number of earlier events to send first")] = 0
    level: Annotated[str, Meta(description="least level of log lines: debug, info, warning or error")] = "info"
