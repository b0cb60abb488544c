"""Queries on real daemons, sockets and Spark: DuckDB's rows arrive, each once, although processes die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sbon.model import Rows, SinkSpec
from sbon_cli.commands.queries.follow import Follower
from sbon_protocol.errors import SbonError
from tests.live.family import Kind, engine_process
from tests.live.world import SITES, SQL, World, finished, stored, submit, wait_for

pytestmark = pytest.mark.live
OTHER_STRATEGIES = pytest.mark.only_in_test_all("strategies on live nodes")
OTHER_FORMATS = pytest.mark.only_in_test_all("formats of files on live nodes")


@pytest.mark.parametrize(
    "strategy",
    ["relaxation", *(pytest.param(name, marks=OTHER_STRATEGIES) for name in ("producer", "consumer", "random", "ants"))],
)
def test_followed_rows_are_those_of_duckdb(world: World, strategy: str) -> None:
    name = f"fast_{strategy}"
    world.declare(name, replay=0)
    ada, dee = world.cluster["ada"], world.cluster["dee"]
    info = submit(ada, sql=SQL.replace("readings", name), consumer="dee", strategy=strategy)
    rows: list[tuple[Any, ...]] = []

    def take(frame: Rows) -> None:
        rows.extend((*row[:4], row[4].replace("T", " ").rstrip("Z")) for row in frame.rows)

    follower_node = world.cluster["ada" if strategy == "relaxation" else "dee"]  # any node has the rows
    assert Follower(follower_node.client, info.id, take).run().state == "finished"

    assert sorted(_with_times(rows), key=repr) == world.answer()
    wait_for(lambda: finished(dee, info.id), "the record says so")
    wait_for(lambda: [line.bytes > 0 for line in dee.client.query_usage(info.id).links] == [True] * 6, "all links are counted")
    assert dee.client.query(info.id).rows == len(rows)
    for node in world.cluster.nodes:
        wait_for(lambda node=node: node.client.status().operators == (), f"no operator is left at {node.name}")  # type: ignore[misc]


def _with_times(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*row[:4], datetime.fromisoformat(str(row[4])).replace(tzinfo=None)) for row in rows]


@pytest.mark.parametrize("ending", [".parquet", *(pytest.param(name, marks=OTHER_FORMATS) for name in (".ndjson", ".csv"))])
def test_a_file_holds_each_row_once(world: World, tmp_path: Path, ending: str) -> None:
    name = f"file_{ending[1:]}"
    world.declare(name, replay=0)
    path = tmp_path / f"rows{ending}"
    sink = SinkSpec(kind="file", options={"path": str(path), "format": ending[1:]})
    info = submit(world.cluster["ada"], sql=SQL.replace("readings", name), consumer="dee", sink=sink)
    wait_for(lambda: finished(world.cluster["bob"], info.id), "any node says that it is finished")
    assert stored(path) == world.answer()


class UnderFire:
    """Queries over slow sources, one after another, so that every fault strikes while rows of all sites are under way."""

    def __init__(self, world: World, folder: Path, replay: float) -> None:
        self.world, self._folder, self._replay = world, folder, replay
        self.runs: list[tuple[str, Path]] = []

    def rows_of(self, site: str) -> int:
        path = self.runs[-1][1]
        return path.read_text().count(f'"site":"{site}"') if path.exists() else 0

    def more_of(self, *sites: str) -> None:
        """Wait until the newest query, which still runs, has delivered more rows of each of these sites."""
        ada = self.world.cluster["ada"]
        if not self.runs or finished(ada, self.runs[-1][0]):
            name = f"killed_{self._folder.name}_{len(self.runs)}"
            self.world.declare(name, replay=self._replay)
            path = self._folder / f"{name}.ndjson"
            sink = SinkSpec(kind="file", options={"path": str(path), "format": "ndjson"})
            sql = SQL.replace("readings", name)
            self.runs.append((submit(ada, sql=sql, consumer="dee", sink=sink, strategy="producer").id, path))
        before = {site: self.rows_of(site) for site in sites}
        wait_for(lambda: all(self.rows_of(site) > count for site, count in before.items()) or self._over(), "rows arrive")
        if self._over():
            self.more_of(*sites)

    def _over(self) -> bool:
        return finished(self.world.cluster["ada"], self.runs[-1][0])


@pytest.mark.parametrize(
    "processes, daemons, paused, replay",
    [
        pytest.param(("host",), ("dee",), False, 1000.0, id="a host and the consumer"),
        pytest.param(
            ("worker", "zygote", "jvm", "host"),
            ("cyd", "dee"),
            True,
            250.0,
            id="each",
            marks=pytest.mark.only_in_test_all("deaths of every process of live nodes"),
        ),
    ],
)
def test_exactly_once_while_processes_die(
    world: World, tmp_path: Path, processes: Sequence[Kind], daemons: Sequence[str], paused: bool, replay: float
) -> None:
    """Processes of an operator's engine; then, by SIGKILL, the daemons of a source with its operator and of the consumer, the
    engine process left orphaned; a daemon that is stopped for a while, and one that goes away cleanly. Each comes back."""
    cluster = world.cluster
    fire = UnderFire(world, tmp_path, replay)

    for victim in processes:
        fire.more_of("bob")
        struck = engine_process(cluster["bob"], victim)
        struck.kill()
        wait_for(lambda struck=struck: not struck.is_running() or struck.status() == "zombie", "it is dead")  # type: ignore[misc]
    for name in daemons:
        fire.more_of(*SITES)
        cluster[name].kill(signal.SIGKILL)
        cluster[name].restart()
    fire.more_of(*SITES)
    if paused:
        cluster["bob"].pause()
        time.sleep(3)
        cluster["bob"].resume()
        fire.more_of("bob")
        cluster["bob"].kill(signal.SIGTERM)
        cluster["bob"].restart()
        fire.more_of("bob")

    for query, path in fire.runs:
        wait_for(lambda query=query: finished(cluster["ada"], query), "the query is finished")  # type: ignore[misc]
        assert stored(path) == world.answer()
    for node in cluster.nodes:
        wait_for(lambda node=node: node.client.status().operators == (), "operators are gone")  # type: ignore[misc]


REFUSED = [
    ({"sql": "SELECT n FROM nowhere"}, "unknown-stream"),
    ({"sql": "SELECT nope FROM {name}"}, "unknown-column"),
    ({"sql": "SELECT reflect('java.lang.System', 'exit', 1) FROM {name}"}, "forbidden-function"),
    ({"sql": "SELECT n FROM {name}", "consumer": "eve"}, "unknown-node"),
    ({"sql": "SELECT n FROM {name}", "strategy": "magic"}, "unknown-strategy"),
    ({"sql": "SELECT n FROM {name}", "sink": SinkSpec(kind="file", options={"path": "/nowhere/x.csv"})}, "bad-option"),
]


@pytest.mark.parametrize("fields, code", REFUSED, ids=[code for _, code in REFUSED])
def test_a_refusal_leaves_nothing_behind(world: World, fields: dict[str, Any], code: str) -> None:
    if "refusals" not in {s.entry.declaration.name for s in world.cluster.nodes[0].client.streams()}:
        world.declare("refusals", replay=0)
    ada, bob = world.cluster["ada"].client, world.cluster["bob"].client
    before = len(ada.queries())
    wait_for(lambda: len(bob.queries()) == before, "both nodes know the same queries")
    wait_for(lambda: all(node.client.status().operators == () for node in world.cluster.nodes), "no operator is left of others")
    fields = fields | {"sql": fields["sql"].replace("{name}", "refusals")}
    with pytest.raises(SbonError) as refusal:
        submit(world.cluster["ada"], **fields)
    assert refusal.value.code == code
    assert [len(client.queries()) for client in (ada, bob)] == [before, before]
    assert all(node.client.status().operators == () for node in world.cluster.nodes)


def test_a_restart_resumes_identity_streams_and_queries(world: World) -> None:
    world.declare("again", replay=0.1)
    ada, bob = world.cluster["ada"], world.cluster["bob"]
    info = submit(ada, sql="SELECT n FROM again WHERE n > 0", consumer="bob", strategy="producer")
    before = next(m for m in ada.client.members() if m.name == "bob")
    bob.restart()
    wait_for(lambda: any(m.name == "bob" and m.incarnation > before.incarnation for m in ada.client.members()), "it is back")
    wait_for(lambda: "again" in {s.entry.declaration.name for s in bob.client.streams()}, "it knows the stream")
    wait_for(lambda: all(o.state == "running" for o in ada.client.query(info.id).operators), "all operators run again")
    assert len(ada.client.query(info.id).operators) == len(SITES)

    stopped = bob.client.stop_query(info.id)

    assert stopped.state == "stopped"
    wait_for(lambda: all(node.client.status().operators == () for node in world.cluster.nodes), "no operator is left")
    assert os.listdir(bob.data_dir / "operators") == ["lock"]
