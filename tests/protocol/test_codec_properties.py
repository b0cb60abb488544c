"""The codec: any bytes raise only the protocol's own error, and messages arrive as sent."""

from __future__ import annotations

import inspect
import math
import types
import typing
from typing import Annotated, Any, Literal

import msgpack
import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sbon_protocol import base, calls, codec, measuring, messages, moving
from sbon_protocol.base import Message
from sbon_protocol.datagram import MAX_DATAGRAM_BYTES, fill, kind_of, pack, unpack
from sbon_protocol.errors import ProtocolError
from sbon_protocol.frames import encode_frame
from sbon_protocol.messages import Frame, Gossip, Member, Packet
from sbon_protocol.papers import ants, sand
from sbon_protocol.version import VERSION
from tests.examples_drawn import examples
from tests.protocol.reading import frames_in

checked = settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TYPES: list[type[Message]] = [
    member
    for module in (messages, calls, measuring, moving, sand, ants)
    for member in vars(module).values()
    if inspect.isclass(member) and issubclass(member, Message) and member not in (Message, base.Call)
]

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
"""Values of a field of type Any."""


def valid(type_: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type, within its limits, the extremes included."""
    origin, parameters = typing.get_origin(type_), typing.get_args(type_)
    if type_ is Any:
        return plain
    if origin is Annotated:
        return _limited(parameters[0], parameters[1])
    if origin in (typing.Union, types.UnionType):
        return st.one_of([st.none() if p is types.NoneType else valid(p) for p in parameters])
    if origin is Literal:
        return st.sampled_from(parameters)
    if origin is tuple:
        return st.lists(valid(parameters[0]), max_size=3).map(tuple)
    if type_ in (str, bytes, bool):
        return {str: st.text(), bytes: st.binary(), bool: st.booleans()}[type_]
    if type_ is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    return message_of(type_)


def _limited(type_: Any, meta: msgspec.Meta) -> st.SearchStrategy[Any]:
    if meta.pattern:
        return st.from_regex(meta.pattern.replace("*", "{0,61}"), fullmatch=True)
    if type_ is str:
        return st.text(min_size=meta.min_length or 0, max_size=min(20, meta.max_length or 20))
    if type_ is bytes:
        return st.binary(min_size=meta.min_length or 0, max_size=min(20, meta.max_length or 20))
    if type_ is int:
        return st.integers(int(meta.ge or 0), int(meta.le or 0))
    if type_ is float:
        return st.floats(float(meta.ge or 0), float(meta.le or 0))
    if typing.get_origin(type_) is dict:
        key, value = typing.get_args(type_)
        return st.dictionaries(valid(key), valid(value), max_size=3)
    return st.lists(valid(typing.get_args(type_)[0]), min_size=meta.min_length or 0, max_size=3).map(tuple)


def message_of(type_: type[Message]) -> st.SearchStrategy[Message]:
    hints = typing.get_type_hints(type_, include_extras=True)
    return st.builds(type_, **{field: valid(hints[field]) for field in type_.__struct_fields__})


any_message = st.sampled_from(TYPES).flatmap(message_of)
any_frame = st.sampled_from(typing.get_args(Frame)).flatmap(message_of)


@st.composite
def any_packet(draw: st.DrawFn) -> Packet:
    message: Any = draw(st.none() | st.sampled_from((*typing.get_args(Gossip), *typing.get_args(ants.Ant))).flatmap(message_of))
    packet = Packet(cluster=draw(valid(messages.Name)), message=message, members=())
    assume(len(codec.encode(packet)) <= MAX_DATAGRAM_BYTES - 4)
    return packet


@st.composite
def damaged(draw: st.DrawFn, payload: bytes) -> bytes:
    """The bytes with a few changed, cut out, doubled or put in; or with one value inside exchanged for another."""
    if draw(st.booleans()):
        value = msgpack.unpackb(payload)
        if isinstance(value, list) and value:
            value[draw(st.integers(0, len(value) - 1))] = draw(
                plain | st.sampled_from([math.nan, math.inf, -1, 2**64 - 1, "", []])
            )
        return bytes(msgpack.packb(value))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(payload)))
        until = at + draw(st.integers(0, 4))
        payload = payload[:at] + draw(st.binary(max_size=4)) + payload[until:]
    return payload


def refused_or(type_: Any, found: Any) -> None:
    """Decoded values are of the type asked for, whole and finite: they can be sent again."""
    assert isinstance(found, typing.get_args(type_) or type_)
    assert codec.decode(codec.encode(found), type_) == found


# -- what comes in ----------------------------------------------------------------------------------------------------


@checked
@given(payload=st.binary(max_size=300), type_=st.sampled_from(TYPES))
def test_arbitrary_bytes_are_refused_or_decoded(payload: bytes, type_: type[Message]) -> None:
    try:
        found: Any = codec.decode(payload, type_)
    except ProtocolError:
        return
    refused_or(type_, found)


@checked
@given(st.data())
def test_damaged_messages_are_refused_or_decoded(data: st.DataObject) -> None:
    message = data.draw(any_message)
    payload = data.draw(damaged(codec.encode(message)))
    try:
        found: Any = codec.decode(payload, type(message))
    except ProtocolError:
        return
    refused_or(type(message), found)


@checked
@given(st.data())
def test_damaged_datagrams_are_refused_or_decoded(data: st.DataObject) -> None:
    payload = pack(data.draw(any_packet()))
    if data.draw(st.booleans()):
        payload = payload[:4] + data.draw(damaged(payload[4:]))
    else:
        at = data.draw(st.integers(0, len(payload)))
        payload = payload[:at] + data.draw(st.binary(max_size=4)) + payload[at + 1 :]
    try:
        found = unpack(payload)
    except ProtocolError:
        return
    refused_or(Packet, found)


@checked
@given(st.data())
def test_datagrams_that_are_read_quickly_say_what_they_say_when_read_slowly(data: st.DataObject) -> None:
    packet = data.draw(any_packet())
    rumours = (*packet.members, *packet.state_updates, *packet.coordinate_updates)
    payload, taken = fill(packet.cluster, packet.message, rumours)
    assert taken == len(rumours)
    assert payload == pack(packet)
    assert unpack(payload) == codec.decode(payload[4:], Packet) == packet
    assert kind_of(payload) == (type(packet.message).__struct_config__.tag if packet.message else "rumours")


@checked
@given(payload=st.binary(max_size=1300))
def test_arbitrary_datagrams_are_refused_or_decoded(payload: bytes) -> None:
    for candidate in (payload, b"SB\x01\x00" + payload):
        try:
            found = unpack(candidate)
        except ProtocolError:
            continue
        refused_or(Packet, found)


@checked
@given(body=st.binary(max_size=800), announced=st.integers(0, 60))
async def test_arbitrary_streams_of_bytes_are_refused_or_decoded(body: bytes, announced: int) -> None:
    try:
        for frame in await frames_in(announced.to_bytes(4, "big") + body):
            refused_or(Frame, frame)
    except (ProtocolError, EOFError):
        return


@checked
@given(st.data())
async def test_damaged_frames_are_refused_or_decoded(data: st.DataObject) -> None:
    body = data.draw(damaged(codec.encode(data.draw(any_frame))))
    try:
        for frame in await frames_in(len(body).to_bytes(4, "big") + body):
            refused_or(Frame, frame)
    except ProtocolError:
        return


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """As those that travel in a field of any."""

    name: messages.Name
    size: float = 0.0
    options: dict[str, Any] = {}
    inner: tuple[Record, ...] = ()


hostile = st.recursive(
    plain | st.floats() | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=3)) | st.builds(object),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "size", "options", "inner", "other"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@checked
@given(value=hostile)
def test_arbitrary_records_are_refused_or_checked(value: Any) -> None:
    try:
        found: Any = codec.decode_record(value, Record)
    except ProtocolError:
        return
    assert math.isfinite(found.size)


@pytest.mark.parametrize("type_", TYPES, ids=lambda type_: str(type_.__name__))
@pytest.mark.parametrize(
    "payload", [b"\x91" * 100_000, b"\x81\xa1a" * 100_000, b"\xdd\x7f\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", b"\xc1"]
)
def test_bytes_made_to_exhaust_are_refused(type_: type[Message], payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        codec.decode(payload, type_)


# -- what is sent is what arrives -------------------------------------------------------------------------------------


@checked
@given(message=any_message)
def test_messages_come_back_as_they_went(message: Message) -> None:
    assert codec.decode(codec.encode(message), type(message)) == message


@checked
@given(message=any_message, more=st.lists(plain, max_size=3))
def test_fields_of_a_later_version_are_ignored(message: Message, more: list[Any]) -> None:
    later = msgpack.packb([*msgpack.unpackb(codec.encode(message)), *more])
    assert codec.decode(later, type(message)) == message


@checked
@given(message=any_message)
def test_fields_that_an_earlier_version_lacks_are_filled_in(message: Message) -> None:
    optional = len(message.__struct_defaults__)
    value = msgpack.unpackb(codec.encode(message))
    earlier: Any = codec.decode(msgpack.packb(value[: len(value) - optional]), type(message))
    required = message.__struct_fields__[: len(message.__struct_fields__) - optional]
    assert [getattr(earlier, name) for name in required] == [getattr(message, name) for name in required]


@checked
@given(frames=st.lists(any_frame, max_size=5))
async def test_frames_come_back_one_after_the_other(frames: list[Frame]) -> None:
    assert await frames_in(b"".join(encode_frame(frame) for frame in frames)) == frames


async def test_the_largest_payload_fits_a_frame_and_a_byte_more_is_refused_by_both_sides() -> None:
    def data(size: int) -> messages.Data:
        return messages.Data(2**62, 2**62, 2**62, -(2**62), True, 2**62, bytes(size))

    (frame,) = await frames_in(encode_frame(data(codec.MAX_PAYLOAD_BYTES)))
    assert frame == data(codec.MAX_PAYLOAD_BYTES)
    with pytest.raises(ProtocolError):
        codec.decode(codec.encode(data(codec.MAX_PAYLOAD_BYTES + 1)), Frame)
    with pytest.raises(ValueError, match="limit"):
        encode_frame(data(codec.MAX_MESSAGE_BYTES))


@checked
@given(packet=any_packet(), members=st.lists(message_of(Member), max_size=80))
def test_as_many_rumours_go_as_fit_and_in_their_order(packet: Packet, members: list[Member]) -> None:
    payload, taken = fill(packet.cluster, packet.message, members)
    assert len(payload) <= MAX_DATAGRAM_BYTES
    assert unpack(payload) == Packet(cluster=packet.cluster, message=packet.message, members=tuple(members[:taken]))
    assert payload == pack(Packet(cluster=packet.cluster, message=packet.message, members=tuple(members[:taken])))
    if taken < min(len(members), 64):
        with pytest.raises(ValueError, match="limit"):
            pack(Packet(cluster=packet.cluster, message=packet.message, members=tuple(members[: taken + 1])))


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800", [[]] * 2])
def test_messages_that_no_peer_accepts_are_not_sent(value: Any) -> None:
    if isinstance(value, list):
        for _ in range(codec.MAX_DEPTH):
            value = [value]
    with pytest.raises(ValueError, match=r"finite|surrogates|deeper"):
        codec.encode(messages.Response(id=1, body=value))


@pytest.mark.parametrize("count", [0, 1, 14, 15, 16, 17, 80])
def test_small_rumours_fill_a_datagram_past_the_growth_of_the_arrays_header(count: int) -> None:
    here = messages.Endpoint("h", 1)
    members = [Member("n", here, here, 1, "alive")] * count
    payload, taken = fill("c", None, members)
    assert taken == min(count, 53)
    assert payload == pack(Packet(cluster="c", members=tuple(members[:taken])))


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("field", ["vector", "height", "error", "load"])
def test_datagrams_with_impossible_numbers_are_refused(field: str, number: float) -> None:
    """Written as this version writes them, so that they are read quickly."""
    place = messages.Coordinate(**{"vector": (0.0,), field: (number,) if field == "vector" else number})  # type: ignore[arg-type]
    here = messages.Endpoint("h", 1)
    for packet in (
        Packet(cluster="c", message=messages.Ping(1, "a", "b", coordinate=place)),
        Packet(cluster="c", members=(Member("n", here, here, 1, "alive", coordinate=place),)),
        Packet(cluster="c", coordinate_updates=(messages.CoordinateUpdate("n", 1, place, 1),)),
    ):
        with pytest.raises(ProtocolError):
            unpack(b"SB" + bytes([VERSION, 0]) + msgspec.msgpack.encode(packet))
