"""A node with replicated sources is killed with its disk on real sockets: posts come out once, messages of MQTT at least once."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path

import pytest

from sbon import SbonError
from sbon.local.cluster import LocalCluster
from sbon.model import Column, SinkSpec, SourceDeclaration, StreamDeclaration
from sbon_lab.migration.kills import kill
from tests.cli.commands import run
from tests.connectors.servers import PASSWORD, USER, Mosquitto
from tests.connectors.test_mqtt import publish
from tests.live.world import World, submit, wait_for

pytestmark = pytest.mark.live

POSTS, ROWS, MESSAGES = 40, 5, 60
HOST, ASKED = "dee", "ada"


def declare(cluster: LocalCluster, broker: Mosquitto, stream: str, connector: str) -> None:
    columns = (Column("id", "bigint"), Column("ts", "timestamp"))
    mqtt = {"url": broker.url, "topic": "ids"}
    options = {"stamp": True, **(mqtt if connector == "mqtt" else {})}
    client = cluster[ASKED].client
    client.create_stream(StreamDeclaration(name=stream, schema=columns, event_time="ts"))
    source = SourceDeclaration(
        stream=stream, name="one", node=HOST, connector=connector, options=options, durability="replicated"
    )
    client.attach_source(source)


def node_of(cluster: LocalCluster, stream: str) -> str:
    return cluster[ASKED].client.stream(stream).entry.sources[0].node


def push(cluster: LocalCluster, number: int) -> None:
    """Post rows until they are confirmed, at the node that has the source by then."""
    body = "".join(f'{{"id": {number * ROWS + i}}}\n' for i in range(ROWS)).encode()
    deadline = time.monotonic() + 120.0
    while True:
        try:
            pushed = cluster[node_of(cluster, "clicks")].client.push(
                "clicks", body, "application/x-ndjson", source="one", key=f"post-{number}"
            )
        except SbonError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            assert pushed.rows == ROWS
            return


def ids(path: Path) -> Counter[int]:
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter(json.loads(line)["id"] for line in lines if line.endswith("}"))


def test_posts_and_messages_survive_their_node(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, asked, results = world.cluster, world.cluster[ASKED], {}
    with Mosquitto(33) as broker:
        world.passwords.write_text(f"machine {broker.host} login {USER} password {PASSWORD}\n")
        for stream, connector in (("clicks", "http"), ("readings", "mqtt")):
            declare(cluster, broker, stream, connector)
            results[stream] = tmp_path / f"{stream}.ndjson"
            sink = SinkSpec(kind="file", options={"path": str(results[stream])})
            sql = f"SELECT id FROM {stream} WHERE id >= 0"
            submit(asked, sql=sql, name=stream, consumer=ASKED, strategy="consumer", sink=sink)

        def subscribed() -> bool:
            return [source.state for source in cluster[HOST].client.stream("readings").sources] == ["running"]

        wait_for(subscribed, "the broker keeps messages for the source")
        for number in range(POSTS):
            if number == POSTS // 2:
                asyncio.run(publish(broker, "ids", *(f'{{"id": {i}}}' for i in range(MESSAGES // 2))))
                push(cluster, number)
                kill(cluster[HOST], "all")
                cluster[HOST].lose_data()
                asyncio.run(publish(broker, "ids", *(f'{{"id": {i}}}' for i in range(MESSAGES // 2, MESSAGES))))
            push(cluster, number)
        backup = node_of(cluster, "clicks")
        assert backup != HOST
        monkeypatch.setenv("COLUMNS", "200")
        others = [node for node in (ASKED, "bob", "cyd") if node != backup]

        def shown() -> str:
            return run(asked.api, "stream", "show", "clicks").stdout

        wait_for(lambda: any(f"at {node}" in shown() for node in others), lambda: f"it has another backup: {shown()}")
        assert "replicated" in shown()
        wait_for(lambda: len(ids(results["clicks"])) == POSTS * ROWS, "all posted rows are in the file")
        wait_for(lambda: len(ids(results["readings"])) == MESSAGES, "all messages are in the file")
        assert set(ids(results["clicks"]).values()) == {1}
        assert sorted(ids(results["readings"])) == list(range(MESSAGES))
        for stream in results:
            assert asked.client.query(stream).state == "running"
            asked.client.stop_query(stream)
        cluster[HOST].restart()
        cluster.wait_converged()
        for stream in results:
            asked.client.drop_stream(stream)
