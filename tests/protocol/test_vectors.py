"""The golden vectors: each message's fields and bytes, checked both ways, so that the wire does not change unnoticed."""

from __future__ import annotations

import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_protocol import base, calls, codec, datagram, frames, measuring, messages, moving
from sbon_protocol.errors import ProtocolError
from sbon_protocol.papers import ants, sand
from sbon_protocol.version import VERSION
from tests.protocol.reading import frames_in

VECTORS = Path(__file__).parents[2] / "protocol" / "vectors"
FILES = sorted(VECTORS.glob("*.json"))
REFUSED = sorted((VECTORS / "refused").glob("*.json"))

MESSAGES: dict[str, type[base.Message]] = {
    name: member
    for module in (messages, calls, measuring, moving, sand, ants)
    for name, member in vars(module).items()
    if inspect.isclass(member) and issubclass(member, base.Message) and member not in (base.Message, base.Call)
}


def readable(value: Any) -> Any:
    """A message as the vectors write it: by field name, bytes in hexadecimal."""
    if isinstance(value, base.Message):
        return {"$": type(value).__name__, **_fields(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, list | tuple):
        return [readable(item) for item in value]
    if isinstance(value, dict):
        return {key: readable(item) for key, item in value.items()}
    return value


def _fields(message: base.Message) -> dict[str, Any]:
    return {name: readable(getattr(message, name)) for name in message.__struct_fields__}


def built(value: Any) -> Any:
    """The message that a vector's fields describe, nested ones first."""
    if isinstance(value, list):
        return tuple(built(item) for item in value)
    if not isinstance(value, dict):
        return value
    if set(value) == {"bytes"}:
        return bytes.fromhex(value["bytes"])
    fields = {key: built(item) for key, item in value.items() if key != "$"}
    return MESSAGES[value["$"]](**fields) if "$" in value else fields


def encoded(form: str, message: Any) -> bytes:
    match form:
        case "datagram":
            return datagram.pack(message)
        case "frame":
            return frames.encode_frame(message)
        case _:
            return codec.encode(message)


def decoded(form: str, name: str, payload: bytes) -> Any:
    match form:
        case "datagram":
            return datagram.unpack(payload)
        case "frame":
            (frame,) = asyncio.run(frames_in(payload))
            return frame
        case _:
            return codec.decode(payload, MESSAGES[name])


def test_every_message_has_a_vector() -> None:
    vectors = [json.loads(file.read_text()) for file in FILES]
    assert {vector["message"] for vector in vectors if vector["form"] == "message"} == set(MESSAGES)
    assert {vector["form"] for vector in vectors} == {"message", "datagram", "frame"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_fields_and_bytes_stand_for_each_other(file: Path) -> None:
    vector = json.loads(file.read_text())
    payload = bytes.fromhex(vector["hex"])
    message = built({"$": vector["message"], **vector["fields"]})
    assert encoded(vector["form"], message).hex() == vector["hex"]
    assert readable(decoded(vector["form"], vector["message"], payload)) == {"$": vector["message"], **vector["fields"]}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_every_field_of_a_vector_differs_from_its_default(file: Path) -> None:
    vector = json.loads(file.read_text())
    type_ = MESSAGES[vector["message"]]
    assert list(vector["fields"]) == list(type_.__struct_fields__)
    defaults = dict(zip(reversed(type_.__struct_fields__), reversed(type_.__struct_defaults__), strict=False))
    if vector["form"] == "message":
        assert [name for name, default in defaults.items() if vector["fields"][name] == msgspec.to_builtins(default)] == []


@pytest.mark.parametrize("file", REFUSED, ids=lambda file: str(file.stem))
def test_invalid_vectors_are_refused_with_their_reason(file: Path) -> None:
    vector = json.loads(file.read_text())
    with pytest.raises(ProtocolError) as caught:
        decoded(vector["form"], vector.get("message", ""), bytes.fromhex(vector["hex"]))
    assert caught.value.reason == vector["reason"]


def test_the_first_datagram_of_version_1_in_bytes_written_by_hand() -> None:
    packet = messages.Packet(cluster="c", message=messages.Nack(sequence=7, source="n"))
    by_hand = b"SB" + bytes([VERSION, 0]) + b"\x95" + b"\xa1c" + b"\x93\xa4nack\x07\xa1n" + b"\x90\x90\x90"
    assert datagram.pack(packet) == by_hand
    assert datagram.unpack(by_hand) == packet
