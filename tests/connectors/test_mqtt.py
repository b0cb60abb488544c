"""Messages of a real Mosquitto: each stored, whichever side is killed when, and none acknowledged before it is."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from sbon_node.base.clock import Clock
from sbon_node.connectors.formats import frames
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.registry import open_source
from sbon_node.connectors.sources.runner import SourceRunner
from sbon_node.model.schema import parse_schema
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.errors import SbonError
from tests.connectors.servers import PASSWORD, USER, Mosquitto
from tests.connectors.test_http_sink import letters_in

STREAM = StreamDeclaration(name="readings", schema=parse_schema("ts timestamp, n bigint, topic string"), event_time="ts")


@pytest.fixture(scope="module")
def broker() -> Iterator[Mosquitto]:
    with Mosquitto() as started:
        yield started


class Killed(Exception):
    pass


class Reading:
    """The source over an outbox in a folder, as often as it is started."""

    def __init__(self, folder: Path, broker: Mosquitto, words: str = PASSWORD, **options: Any) -> None:
        self.folder = folder
        (folder / "words").write_text(f"machine {broker.host} login {USER} password {words}\n")
        options = {"url": broker.url, "topic": "site/+/n", "topic_column": "topic", "stamp": True} | options
        self.declaration = SourceDeclaration(stream="readings", name="one", node="here", connector="mqtt", options=options)
        self.settings = ConnectorSettings(
            retry_s=0.1, retry_max_s=0.2, passwords=str(folder / "words"), endpoints=("127.0.0.0/8",)
        )
        self.failpoint: Callable[[str], None] = lambda step: None

    def start(self) -> None:
        self.outbox = Outbox(self.folder / "outbox.db", StreamSettings(), lambda step: self.failpoint(step))
        self.runner = SourceRunner(
            self.declaration,
            STREAM,
            open_source(self.declaration, STREAM, self.settings),
            outbox=self.outbox,
            clock=Clock(),
            settings=self.settings,
            dead_letters=self.folder / "dead-letters",
        )
        self.task = asyncio.get_running_loop().create_task(self.runner.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        self.outbox.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.start()
        await until(lambda: self.runner.state == "running" and self.outbox.position(self.declaration.id) is not None)
        try:
            yield
        finally:
            await self.stop()

    @property
    def rows(self) -> list[tuple[int, str]]:
        found = [f for f in self.outbox.read(self.declaration.id, 0, 2**40) if f.payload]
        return [(row["n"], row["topic"]) for f in found for row in frames.decode(f.payload).to_pylist()]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def publish(broker: Mosquitto, topic: str, *payloads: str | bytes, retain: bool = False, patience_s: float = 60.0) -> None:
    """Each until the broker has confirmed it, once more where that takes too long."""
    left = list(payloads)
    async with asyncio.timeout(120):
        while left:
            try:
                async with aiomqtt.Client(
                    broker.host, broker.port, username=USER, password=PASSWORD, timeout=patience_s
                ) as client:
                    while left:
                        await client.publish(topic, left[0], qos=1, retain=retain)
                        left.pop(0)
            except aiomqtt.MqttError:
                await asyncio.sleep(0.05)


def number(n: int) -> str:
    return json.dumps({"n": n})


async def test_messages_are_rows_and_what_is_none_is_kept(broker: Mosquitto, tmp_path: Path) -> None:
    reading = Reading(tmp_path, broker, topic="kinds/#", max_payload_bytes=1000)
    await publish(broker, "kinds/retained", number(0), retain=True)
    async with reading.running():
        await publish(broker, "kinds/a", number(1), '{\n "n": 2\n}', '{"n": 3}\n{"n": 4}')
        await publish(broker, "kinds/b/c", "nonsense", number(5), b"\xff", "x" * 1001, b"")
        await until(lambda: reading.runner.counts.bad == 3 and reading.runner.counts.rows == 6)
        assert reading.rows == [
            (0, "kinds/retained"),
            *((n, "kinds/a") for n in (1, 2, 3, 4)),
            (5, "kinds/b/c"),
        ]
        letters = letters_in(reading.runner.describe().dead_letters)
        assert [letter["line"] for letter in letters] == [5, 7, 8]
        assert letters[0]["reason"].startswith("kinds/b/c: no JSON object")
        assert letters[2]["reason"] == "a message of 1,001 bytes"
    async with reading.running():
        await publish(broker, "kinds/a", number(6))
        await until(lambda: reading.runner.counts.rows >= 7)
        assert [n for n, _ in reading.rows] == [0, 1, 2, 3, 4, 5, 6], "what is retained came with the new subscription alone"


@pytest.mark.parametrize("kind, payload", [("csv", "7,2020-01-01\n8,2020-01-02"), ("text", "7 2020-01-01\n8 2020-01-02\n")])
async def test_other_formats(broker: Mosquitto, tmp_path: Path, kind: str, payload: str) -> None:
    more = {"pattern": r"(?P<n>\d+) (?P<ts>\S+)"} if kind == "text" else {}
    reading = Reading(tmp_path, broker, topic=f"formats/{kind}", format=kind, stamp=False, **more)
    declared = STREAM
    if kind == "csv":
        declared = StreamDeclaration(
            name="readings", schema=parse_schema("n bigint, ts timestamp, topic string"), event_time="ts"
        )
    source = open_source(reading.declaration, declared, reading.settings)
    await source.open(None)
    await source.read()
    await publish(broker, f"formats/{kind}", payload)
    chunk = await source.read()
    assert chunk is not None
    assert [(row["n"], row["ts"].day) for row in chunk.rows.to_pylist()] == [(7, 1), (8, 2)]
    await source.close()


@pytest.mark.one_part_per_commit("connectors at work", parts=6)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_the_broker_killed_and_started_again(broker: Mosquitto, tmp_path: Path, how: signal.Signals) -> None:
    """One that is stopped has stored what it has confirmed, and nothing is missing. One that is killed forgets some of it, and
    sessions too: of what is published from then on, nothing is missing."""
    topic = f"broker/{how}"
    reading = Reading(tmp_path, broker, topic=f"{topic}/+")
    async with reading.running():
        publishing = asyncio.ensure_future(publish(broker, f"{topic}/a", *map(number, range(200)), patience_s=2.0))
        for count in (30, 100):
            await until(lambda count=count: reading.runner.counts.rows >= count or publishing.done())  # type: ignore[misc]
            await asyncio.to_thread(broker.kill, how)
            await until(lambda: reading.runner.state == "paused")
            assert broker.host in reading.runner.reason
            await asyncio.to_thread(broker.start)
            await until(lambda: reading.runner.state == "running")
        await publishing
        await publish(broker, f"{topic}/b", *map(number, range(200, 250)))
        first = 0 if how == signal.SIGTERM else 200
        await until(lambda: {n for n, _ in reading.rows} >= set(range(first, 250)))


async def test_messages_are_acknowledged_once_stored(broker: Mosquitto, tmp_path: Path) -> None:
    """The node dies before a transaction, again and again; what it had read comes again, and what came while it was away."""
    reading = Reading(tmp_path, broker, topic="nodes/+")
    async with reading.running():
        pass
    for death in range(3):
        await publish(broker, "nodes/a", *map(number, range(death * 10, death * 10 + 10)))
        reading.start()
        before = reading.runner

        def kill(self: Outbox, *args: Any) -> None:
            raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Outbox, "write_source", kill)
            await asyncio.wait([reading.task])
        assert isinstance(reading.task.exception(), Killed), before.state
        assert reading.rows == []
        reading.outbox.close()
    # A broker may send a message more than once as long as it is not acknowledged, and what is published later comes later.
    stored = []
    for last in (30, 31, 32):
        async with reading.running():
            await publish(broker, "nodes/a", number(last))
            await until(lambda last=last: any(n == last for n, _ in reading.rows))  # type: ignore[misc]
            stored.append([n for n, _ in reading.rows])
    assert set(stored[0]) == set(range(31))
    assert [n for n in stored[2][len(stored[1]) :] if n < 31] == [], "what was stored was acknowledged"


async def test_more_messages_than_may_be_in_flight(broker: Mosquitto, tmp_path: Path) -> None:
    reading = Reading(tmp_path, broker, topic="many/+", in_flight=10)
    async with reading.running():
        await publish(broker, "many/a", *map(number, range(100)))
        await until(lambda: len(reading.rows) >= 100)
        assert [n for n, _ in reading.rows] == list(range(100))


async def test_a_wrong_password_pauses_the_source_and_is_not_shown(broker: Mosquitto, tmp_path: Path) -> None:
    reading = Reading(tmp_path, broker, words="mistaken")
    reading.start()
    await until(lambda: reading.runner.state == "paused")
    assert "Not authorized" in reading.runner.reason
    assert "mistaken" not in reading.runner.reason
    await reading.stop()


@pytest.mark.parametrize(
    "options, code, where",
    [
        ({"url": "http://h"}, "bad-option", "options.url"),
        ({"url": "mqtt://h/topic"}, "bad-option", "options.url"),
        ({"url": "mqtt://other:1883"}, "outside-endpoints", "options.url"),
        ({"topic": "a/#/b"}, "bad-option", "options.topic"),
        ({"topic": "a/b+"}, "bad-option", "options.topic"),
        ({"topic": ""}, "bad-option", "options.topic"),
        ({"topic_column": "n"}, "bad-option", "options.topic_column"),
        ({"topic_column": "none"}, "bad-option", "options.topic_column"),
        ({"format": "text"}, "missing-columns", "options.pattern"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], code: str, where: str) -> None:
    given = {"url": "mqtt://h", "topic": "a/+/#", **options}
    declared = SourceDeclaration(stream="readings", name="one", node="here", connector="mqtt", options=given)
    with pytest.raises(SbonError) as caught:
        open_source(declared, STREAM, ConnectorSettings(endpoints=("h",)))
    assert (caught.value.code, caught.value.where) == (code, where)
