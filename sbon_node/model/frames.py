"""A frame: the unit in which a stream is numbered, stored, sent and acknowledged (docs/design.md, section 8)."""

import msgspec

from sbon_protocol.codec import MAX_PAYLOAD_BYTES
from sbon_protocol.codec import MAX_ROW_BYTES as MAX_ROW_BYTES

MAX_FRAME_BYTES = MAX_PAYLOAD_BYTES

NO_WATERMARK_MS = -(2**62)
"""No promise about event time yet."""
END_WATERMARK_MS = 2**62
"""No row will follow."""


class FrameDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A frame without a number: an engine batch or a source hands it to the outbox.

    ``payload`` is of :mod:`sbon_node.streams.payload`, or empty if there are no rows. ``watermark_ms`` (event time, UTC)
    promises that no later frame of the stream holds an earlier row; ``ended`` that no row follows at all. ``born_ms`` is the
    wall clock when the oldest row entered the overlay, from which delay is measured.
    """

    payload: bytes
    rows: int
    watermark_ms: int = NO_WATERMARK_MS
    ended: bool = False
    born_ms: int = 0


class Frame(FrameDraft, frozen=True, kw_only=True):
    """The frame ``number`` (1, 2, 3 ... for the stream's whole life) of ``stream``."""

    stream: str
    number: int


class InputOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Position of an operator in an input: a frame number with the state known there.

    ``incarnation`` counts starts of the operator: an offset that differs only in it still makes Spark plan a batch, and so the
    input's last marker is issued again after a restart (docs/design.md, section 7).
    """

    frame: int = 0
    watermark_ms: int = NO_WATERMARK_MS
    ended: bool = False
    incarnation: int = 0
