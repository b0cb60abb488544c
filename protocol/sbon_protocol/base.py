"""The types that all messages of the protocol are made of."""

from typing import Annotated

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?\Z")]
Text = Annotated[str, Meta(max_length=65_536)]
Line = Annotated[str, Meta(max_length=512)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Host = Annotated[str, Meta(min_length=1, max_length=253)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Milliseconds = Annotated[int, Meta(ge=-(2**62), le=2**62)]
Quantity = Annotated[float, Meta(ge=0, le=1e15)]
Names = Annotated[tuple[Line, ...], Meta(max_length=4096)]
Tag = Annotated[str, Meta(min_length=1, max_length=32)]


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A message of the protocol. Subclasses name their tag."""


class Call(Message, frozen=True):
    """A request. ``sbon_protocol.calls.CALLS`` maps each subclass to the type of its reply."""
