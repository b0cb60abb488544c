"""Types are made known to msgspec by one thread at a time, whichever decodes first."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from sbon import endpoints
from sbon_protocol.codec import decode_record


@pytest.mark.parametrize("first_use", ["a message", "an answer of the API"])
def test_threads_that_decode_first_wait_for_one_another(monkeypatch: pytest.MonkeyPatch, first_use: str) -> None:
    drawn = msgspec.defstruct("Drawn", [("name", str)], kw_only=True)
    ask: Any = endpoints.status()._replace(reply=drawn)
    made: list[int] = []
    making, build = threading.Lock(), msgspec.msgpack.Decoder

    def decoder(type_: Any) -> Any:
        assert making.acquire(blocking=False), "two threads at once"
        try:
            time.sleep(0.05)
            made.append(threading.get_ident())
            return build(type_)
        finally:
            making.release()

    def decode(number: int) -> Any:
        return decode_record({"name": "a"}, drawn) if first_use == "a message" else ask.decoded(b'{"name": "a"}')

    monkeypatch.setattr(msgspec.msgpack, "Decoder", decoder)
    with ThreadPoolExecutor(4) as threads:
        assert [one.name for one in threads.map(decode, range(4))] == ["a"] * 4
    assert len(made) == 1
