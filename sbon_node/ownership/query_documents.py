"""A query's record as a register and documents, and back: each change sends the register, and only documents that are new."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

from sbon_node.model.records import QueryDefinition, QueryEnd, QueryRecord, QueryRegister
from sbon_node.model.shown import shown_plan
from sbon_node.ownership.consensus.states import State
from sbon_node.ownership.store.document_store import digest_of
from sbon_node.ownership.store.registers import Attached
from sbon_protocol.api.placement import Placement
from sbon_protocol.errors import SbonError

T = TypeVar("T")


class Parts(NamedTuple):
    """A record for its register: the value, its documents, and the record with their digests."""

    value: bytes
    attached: Attached
    record: QueryRecord


def split(record: QueryRecord, before: QueryRecord | None = None) -> Parts:
    """Return the record's register and those documents that the record ``before`` did not have."""
    documents: dict[str, bytes] = {}

    def digest(content: object) -> str:
        if content is None:
            return ""
        encoded = msgspec.msgpack.encode(content)
        name = digest_of(encoded)
        documents[name] = encoded
        return name

    record = msgspec.structs.replace(
        record,
        definition_digest=digest(
            QueryDefinition(sql=record.sql, sink=record.sink, plan=record.plan, submission=record.submission)
        ),
        placement_digest=digest(record.placement),
        end_digest=digest(_end_of(record)),
    )
    for known in () if before is None else references(before):
        documents.pop(known, None)
    register = QueryRegister(**{name: getattr(record, name) for name in QueryRegister.__struct_fields__})
    return Parts(msgspec.msgpack.encode(register), Attached(references(record), documents), record)


def references(register: QueryRegister) -> tuple[str, ...]:
    """Return the digests of its documents."""
    return tuple(filter(None, (register.definition_digest, register.placement_digest, register.end_digest)))


def decoded(state: State) -> QueryRegister:
    """Return the value of a query's register; raise ``bad-record`` for anything else."""
    return _decoded(state.value, QueryRegister)


def joined(state: State, content: Callable[[str], bytes], known: Iterable[QueryRecord] = ()) -> QueryRecord:
    """Return the record of a register's state, with documents by digest from ``content`` unless a ``known`` record has them.

    Raises ``bad-record``, or the error of ``content``.
    """
    register, records = decoded(state), [one for one in known if one.definition_digest]
    if not register.definition_digest:  # Stored before there were documents.
        return msgspec.structs.replace(_decoded(state.value, QueryRecord), version=state.version)

    def same(field: str) -> QueryRecord | None:
        return next((one for one in records if getattr(one, field) == getattr(register, field)), None)

    fields: dict[str, Any] = {name: getattr(register, name) for name in QueryRegister.__struct_fields__}
    if (one := same("definition_digest")) is not None:
        fields |= {name: getattr(one, name) for name in QueryDefinition.__struct_fields__}
    else:
        definition = _decoded(content(register.definition_digest), QueryDefinition)
        fields |= {name: getattr(definition, name) for name in QueryDefinition.__struct_fields__}
    if (one := same("placement_digest")) is not None:
        fields["placement"] = one.placement
    elif register.placement_digest:
        fields["placement"] = _decoded(content(register.placement_digest), Placement)
    record = QueryRecord(**fields, version=state.version)
    if (one := same("end_digest")) is not None:
        return msgspec.structs.replace(record, last=one.last, query_usage=one.query_usage)
    return _with_end(record, _decoded(content(register.end_digest), QueryEnd)) if register.end_digest else record


def _end_of(record: QueryRecord) -> QueryEnd | None:
    """Return the document of its end, without what its other documents have."""
    if record.last is None and record.query_usage is None:
        return None
    last = record.last and msgspec.structs.replace(record.last, sql="", plan=None, placement=None)
    return QueryEnd(last=last, query_usage=record.query_usage)


def _with_end(record: QueryRecord, end: QueryEnd) -> QueryRecord:
    shown = {"sql": record.sql, "plan": shown_plan(record.plan), "placement": record.placement}
    last = end.last and msgspec.structs.replace(end.last, **shown)
    return msgspec.structs.replace(record, last=last, query_usage=end.query_usage)


def _decoded(content: bytes, type_: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(content, type=type_)
    except msgspec.MsgspecError as error:
        raise SbonError("bad-record", str(error), where="query", hint="do all nodes run the same version?") from error
