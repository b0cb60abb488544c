"""Frames that tests write to an outbox and read from it."""

from __future__ import annotations

from typing import Any

import pytest

from sbon_node.model.frames import NO_WATERMARK_MS, FrameDraft, InputOffset
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.errors import SbonError


def stream_settings(**changed: Any) -> StreamSettings:
    """Return settings by which frames go as soon as nobody needs them, as no later query is to read them here."""
    return StreamSettings(**{"operator_history_bytes": 0, **changed})


SETTINGS = stream_settings()


def draft(text: str = "", watermark_ms: int = NO_WATERMARK_MS, *, ended: bool = False, born_ms: int = 0) -> FrameDraft:
    return FrameDraft(payload=text.encode(), rows=len(text), watermark_ms=watermark_ms, ended=ended, born_ms=born_ms)


def offset(frame: int, **more: int) -> tuple[InputOffset, ...]:
    return (InputOffset(frame=frame, **more),)


def texts(outbox: Outbox, stream: str, after: int = 0) -> list[str]:
    return [frame.payload.decode() for frame in outbox.read(stream, after, 2**30)]


def code_of(call: object) -> str:
    with pytest.raises(SbonError) as caught:
        call()  # type: ignore[operator]
    return caught.value.code


def publish(outbox: Outbox, stream: str, *contents: str) -> None:
    for content in contents:
        batch = outbox.newest(stream) + 1
        outbox.write_batch(stream, batch, offset(batch), [draft(content)])
        outbox.publish(stream, batch)
