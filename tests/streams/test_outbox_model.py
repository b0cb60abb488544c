"""The outbox against a model of it that fits on a page: any order of calls, restarts and deaths between."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sbon_node.base.failpoints import Failpoint
from sbon_node.model.frames import NO_WATERMARK_MS, FrameDraft, InputOffset
from sbon_node.streams.outbox.outbox import Outbox
from sbon_protocol.errors import BrokenInvariantError, SbonError
from tests.streams.outboxes import stream_settings

SETTINGS = stream_settings(outbox_quota_bytes=400, trim_frames=2)
SUBSCRIBERS = ("one", "two", "three")
CONTENTS = st.lists(st.binary(max_size=80), min_size=1, max_size=4)


class KilledError(BaseException):
    pass


class OutboxAgainstModel(RuleBasedStateMachine):
    """``seen`` are the frames ever visible, which may never change; ``pending`` the batches after them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.kill_at: Failpoint | None = None
        self.seen: list[tuple[bytes, int]] = []
        self.pending: list[list[tuple[bytes, int]]] = []
        self.visible_batch = -1
        self.acknowledged: dict[str, int] = {}
        self.received: dict[str, int] = {}
        self.source: list[bytes] = []
        self.position: bytes | None = None

    @initialize()
    def open(self) -> None:
        self.outbox = Outbox(Path(self.folder.name) / "outbox.db", SETTINGS, self._step)
        self.outbox.open_stream("op", "operator")
        self.outbox.open_stream("file", "source", finite=True)

    def _step(self, step: Failpoint) -> None:
        if step == self.kill_at:
            raise KilledError

    def _dies(self, at: Failpoint, call: Callable[[], object]) -> None:
        """Runs the call, and has the process die right after ``at`` has been stored, if that happens."""
        self.kill_at = at
        try:
            call()
        except KilledError:
            self.kill_at = None
            self.restart()
        self.kill_at = None

    @rule()
    def restart(self) -> None:
        self.outbox.close()
        self.open()
        self.received = dict(self.acknowledged)

    @rule(contents=CONTENTS, again=st.booleans(), dies=st.booleans())
    def write(self, contents: list[bytes], again: bool, dies: bool) -> None:
        newest = self.visible_batch + len(self.pending)
        batch = newest if again and newest >= 0 else newest + 1
        drafts = [FrameDraft(payload=content, rows=len(content), watermark_ms=batch) for content in contents]

        def call() -> None:
            expected = "dropped" if batch <= self.visible_batch else "replaced" if batch == newest else "written"
            previous = batch - 1 if batch else NO_WATERMARK_MS
            frames = [(content, previous) for content in contents[:-1]] + [(contents[-1], batch)]
            if expected != "dropped":
                del self.pending[batch - self.visible_batch - 1 :]
                self.pending.append(frames)
            assert self.outbox.write_batch("op", batch, (InputOffset(frame=batch),), drafts) == expected

        self._dies("outbox-write", call) if dies else call()

    @rule(ahead=st.integers(0, 4), contents=CONTENTS)
    def write_out_of_order(self, ahead: int, contents: list[bytes]) -> None:
        newest = self.visible_batch + len(self.pending)
        batch = newest + 2 + ahead
        with pytest.raises(BrokenInvariantError):
            self.outbox.write_batch("op", batch, (), [FrameDraft(payload=content, rows=0) for content in contents])
        with pytest.raises(BrokenInvariantError):
            self.outbox.publish("op", newest + 1)

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), dies=st.booleans())
    def publish(self, data: st.DataObject, dies: bool) -> None:
        count = data.draw(st.integers(1, len(self.pending)))

        def call() -> None:
            for _ in range(count):
                self.seen += self.pending.pop(0)
                self.visible_batch += 1
            assert self.outbox.publish("op", self.visible_batch) == (InputOffset(frame=self.visible_batch),)

        self._dies("publish", call) if dies else call()

    @rule(contents=st.lists(st.binary(max_size=40), max_size=3), dies=st.booleans())
    def write_source(self, contents: list[bytes], dies: bool) -> None:
        def call() -> None:
            self.source += contents
            self.position = str(len(self.source)).encode()
            self.outbox.write_source("file", [FrameDraft(payload=content, rows=1) for content in contents], self.position)

        self._dies("position-write", call) if dies else call()

    @rule(subscriber=st.sampled_from(SUBSCRIBERS), data=st.data())
    def subscribe(self, subscriber: str, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(self.seen) + 2))
        trimmed = self.outbox.earliest("op") - 1
        expected = first or 1
        if expected <= trimmed or expected > len(self.seen) + 1:
            with pytest.raises(SbonError) as caught:
                self.outbox.subscribe("op", subscriber, first)
            assert caught.value.code == ("not-retained" if expected <= trimmed else "stream-behind")
            return
        assert self.outbox.subscribe("op", subscriber, first) == expected
        self.received[subscriber] = expected - 1
        self.acknowledged.setdefault(subscriber, expected - 1)

    @precondition(lambda self: self.acknowledged and self.seen)
    @rule(data=st.data(), kind=st.sampled_from(["received", "acknowledged", "dies"]))
    def report(self, data: st.DataObject, kind: str) -> None:
        subscriber = data.draw(st.sampled_from(sorted(self.acknowledged)))
        number = data.draw(st.integers(1, len(self.seen)))
        self.received[subscriber] = max(self.received[subscriber], number)
        if kind == "received":
            self.outbox.received("op", subscriber, number)
            return
        self.acknowledged[subscriber] = max(self.acknowledged[subscriber], number)
        if kind == "acknowledged":
            self.outbox.acknowledge("op", subscriber, number)
        else:
            self._dies("trim", lambda: self.outbox.acknowledge("op", subscriber, number))

    @precondition(lambda self: self.acknowledged)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        subscriber = data.draw(st.sampled_from(sorted(self.acknowledged)))
        self.outbox.unsubscribe("op", subscriber)
        del self.acknowledged[subscriber], self.received[subscriber]

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "outbox"):
            return
        assert (self.outbox.visible_batch("op"), self.outbox.latest("op")) == (self.visible_batch, len(self.seen))
        assert self.outbox.newest("op") == self.visible_batch + len(self.pending)
        trimmed = self.outbox.earliest("op") - 1
        frames = self.outbox.read("op", trimmed, 2**30)
        assert [(frame.payload, frame.watermark_ms) for frame in frames] == self.seen[trimmed:]
        assert [frame.number for frame in frames] == list(range(trimmed + 1, len(self.seen) + 1))
        if self.acknowledged:
            assert trimmed <= min(self.acknowledged.values())
        assert [frame.payload for frame in self.outbox.read("file", 0, 2**30)] == self.source
        assert self.outbox.position("file") == self.position

    @invariant()
    def holds_its_producer_back_for_what_is_not_received(self) -> None:
        if not hasattr(self, "outbox"):
            return
        written = [*self.seen, *(frame for batch in self.pending for frame in batch)]
        received = min(self.received.values()) if self.received else self.outbox.earliest("op") - 1
        waiting = sum(len(payload) + 64 for payload, _ in written[received:])
        assert self.outbox.pressure("op") == (waiting > SETTINGS.outbox_quota_bytes)

    def teardown(self) -> None:
        self.outbox.close()
        self.folder.cleanup()


TestOutboxAgainstModel = OutboxAgainstModel.TestCase
TestOutboxAgainstModel.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
