"""Messages between the node, its engine process and Spark's Python processes, and their bytes.

The node sends a :data:`Command` to the engine process; readers and outputs send a :data:`Request` to the node. Every
message is MessagePack, preceded by its length; :class:`Refused` may be the answer to any.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from sbon_node.engine.interface import Footprint
from sbon_node.model.frames import InputOffset
from sbon_node.streams.skipped import SkippedRows
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OnError, OperatorSpec
from sbon_protocol.errors import SbonError

LENGTH = struct.Struct(">I")
MAX_BYTES = 256 * 1024 * 1024
HELLO_BYTES = 256

Role = Literal["engine", "reader", "output"]


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of every connection, at most ``HELLO_BYTES`` long."""

    role: Role
    token: Annotated[str, Meta(max_length=64)]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Any message after :class:`Hello`; the name of its class is its tag."""


# -- commands of the node to the engine process ------------------------------------------------------------------------


class Analyse(Message, frozen=True):
    """Return the output schema of a fragment over empty views: :class:`Analysed`."""

    fragment: str
    inputs: tuple[Schema, ...]
    on_error: OnError = "fail"


class Start(Message, frozen=True):
    """Start run ``run`` of an operator; ``checkpoint`` is the absolute path of its folder."""

    spec: OperatorSpec
    checkpoint: str
    run: int
    fsync: bool


class Stop(Message, frozen=True):
    """Stop an operator; an unknown one is ignored."""

    operator: str


class Inspect(Message, frozen=True):
    """Return the engine process's resources, after a collection if ``collect``: :class:`Inspected`."""

    collect: bool


class Close(Message, frozen=True):
    """Stop all operators and end."""


# -- requests of readers and outputs to the node ----------------------------------------------------------------------


class Poll(Message, frozen=True):
    """Wait for news of an input, at most ``wait_s``: :class:`Polled`.

    ``cpu_s`` is the processor time of the reader's process since the rows that it fetched last.
    """

    operator: str
    position: int
    after: InputOffset
    wait_s: float
    cpu_s: float = 0.0


class Spent(Message, frozen=True):
    """A process has spent processor time on reading rows of an operator: :class:`Done`."""

    operator: str
    cpu_s: float


class Fetch(Message, frozen=True):
    """Return the frames (after, upto] of an input: :class:`Fetched`."""

    operator: str
    position: int
    after: int
    upto: int


class Begun(Message, frozen=True):
    """Run ``run`` of a new operator with state may read: Spark has the watermark of its first batch."""

    operator: str
    run: int


class OutputFrame(msgspec.Struct, frozen=True):
    """A part of a batch's output."""

    payload: bytes
    rows: int


class Write(Message, frozen=True):
    """Store the output of a batch, and the rows that it has skipped.

    ``cpu_s`` is the processor time of the engine process and its JVM for the operator since the batch before.
    """

    operator: str
    batch: int
    offsets: tuple[InputOffset, ...]
    frames: tuple[OutputFrame, ...]
    watermark_ms: int
    ended: bool
    batch_ms: float
    skipped: SkippedRows | None = None
    cpu_s: float = 0.0


class Committed(Message, frozen=True):
    """Spark has committed a batch."""

    operator: str
    batch: int


class Ended(Message, frozen=True):
    """An operator's run has ended; ``code`` is empty if the end may be chance."""

    operator: str
    run: int
    code: str
    reason: str


# -- answers ----------------------------------------------------------------------------------------------------------


class Ready(Message, frozen=True):
    """First message of an engine process, once it takes commands; ``pid`` is its JVM's."""

    pid: int


class Analysed(Message, frozen=True):
    schema: Schema


class Inspected(Message, frozen=True):
    footprint: Footprint


class Polled(Message, frozen=True):
    offset: InputOffset


class Fetched(Message, frozen=True):
    payloads: tuple[bytes, ...]


class Done(Message, frozen=True):
    """The command or request is done, and nothing is to be returned."""


class Refused(Message, frozen=True):
    """The answer to a command or request that failed: an :class:`SbonError` as a message."""

    code: str
    message: str
    where: str = ""
    hint: str = ""

    @staticmethod
    def of(error: SbonError) -> Refused:
        return Refused(code=error.code, message=error.message, where=error.where, hint=error.hint)

    def error(self) -> SbonError:
        return SbonError(self.code, self.message, where=self.where, hint=self.hint)


Command = Analyse | Start | Stop | Inspect | Close
Request = Begun | Poll | Fetch | Spent | Write | Committed | Ended

# -- bytes ------------------------------------------------------------------------------------------------------------

T = TypeVar("T")
A = TypeVar("A", bound=Message)

HELLO: msgspec.msgpack.Decoder[Hello] = msgspec.msgpack.Decoder(Hello)
COMMAND: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
REQUEST: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_ENCODER = msgspec.msgpack.Encoder()


def answer_decoder(type_: type[A]) -> msgspec.msgpack.Decoder[A | Refused]:
    """Return the decoder of an answer of that type, or of a refusal."""
    decoder: msgspec.msgpack.Decoder[A | Refused] = _decoder_of(type_ | Refused)
    return decoder


@cache
def _decoder_of(union: Any) -> Any:
    return msgspec.msgpack.Decoder(union)


def encode(message: msgspec.Struct) -> bytes:
    """Return the bytes of a message, preceded by their length."""
    body = _ENCODER.encode(message)
    return LENGTH.pack(len(body)) + body


def decode(body: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Return the message in ``body``; raise :class:`SbonError` ``bad-engine-message`` for any other bytes."""
    try:
        return decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise SbonError("bad-engine-message", f"node and engine do not understand each other: {error}") from error
