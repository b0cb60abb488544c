"""A query on real nodes with a file, a follower and a second follower; the file's node is killed midway."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import pytest

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.node import LocalNode
from sbon.model import Finished, Rows, SinkRequest, SinkSpec, SourceDeclaration
from sbon_cli.commands.queries.follow import ANY_SINK, Follower
from sbon_lab.migration.kills import kill
from tests.live.world import READINGS, submit, wait_for

pytestmark = [pytest.mark.live, pytest.mark.only_in_test_all("a live query with several sinks")]

SQL = "SELECT n, value FROM readings WHERE n % 2 = 0"


class Terminal(threading.Thread):
    """``sbon query follow`` at a node."""

    def __init__(self, node: LocalNode, query: str) -> None:
        super().__init__(daemon=True)
        self.rows: list[tuple[object, ...]] = []
        self.end: Finished | None = None
        self.follower = Follower(node.client, query, self._take, sink=ANY_SINK)

    def _take(self, frame: Rows) -> None:
        self.rows += [tuple(row) for row in frame.rows]

    def run(self) -> None:
        self.end = self.follower.run()


def test_each_sink_has_the_rows_of_duckdb(tmp_path: Path, readings: list[Path]) -> None:
    answer = duckdb.sql(f"SELECT n, value FROM read_csv('{readings[0]}') WHERE n % 2 = 0 ORDER BY n").fetchall()
    with LocalCluster(("ada", "bob", "cyd"), folder=tmp_path / "cluster", overrides=SHORT_LIVED) as cluster:
        client = cluster["ada"].client
        client.create_stream(READINGS)
        options = {"path": str(readings[0]), "replay": 500.0}
        client.attach_source(SourceDeclaration(stream="readings", name="one", node="ada", connector="file", options=options))
        submit(cluster["ada"], sql=SQL, name="several", strategy="producer")
        path = tmp_path / "rows.csv"
        request = SinkRequest(sink=SinkSpec(kind="file", options={"path": str(path)}), consumer="cyd", begin="earliest")
        added = client.add_sink("several", request)
        assert (added.id, added.node, added.begins_after) == ("sink2", "cyd", 0)
        one, two = Terminal(cluster["ada"], "several"), Terminal(cluster["bob"], "several")
        one.start()
        wait_for(lambda: len(one.rows) > 500, "the first follower has rows")
        two.start()
        wait_for(lambda: len(two.rows) > 500 and path.exists(), "the second follower has rows, too")
        (late,) = [sink for sink in client.query("several").sinks if sink.temporary]
        kill(cluster["cyd"], "all")
        cluster["cyd"].start()
        for terminal in (one, two):
            terminal.join(240)
            assert terminal.end is not None
            assert terminal.end.state == "finished"
        wait_for(lambda: client.query("several").state == "finished", lambda: client.query("several").reason)
    assert sorted(one.rows) == answer
    assert sorted(two.rows) == answer[late.begins_after :]
    assert late.begins_after < len(answer)
    assert duckdb.sql(f"SELECT n, value FROM read_csv('{path}') ORDER BY n").fetchall() == answer
