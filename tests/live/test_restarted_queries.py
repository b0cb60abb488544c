"""A query whose operator was lost with its node's disk begins anew from its file on real nodes, where its user allows it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.model import SinkSpec, SourceDeclaration
from sbon_lab.migration.kills import kill
from tests.live.world import READINGS, submit, wait_for

pytestmark = [pytest.mark.live, pytest.mark.only_in_test_all("a live query that begins anew from its sources")]

ASKED, LOST = "ada", "cyd"
SQL = "SELECT count(*) AS n, sum(n) AS total FROM readings GROUP BY window(ts, '10 minutes')"
TEXT = "SELECT count(*) AS n, sum(n) AS total FROM read_csv('{}') GROUP BY time_bucket(INTERVAL '10 minutes', ts) ORDER BY ALL"


def test_a_query_begins_anew_after_the_loss_of_a_disk(tmp_path: Path, readings: list[Path]) -> None:
    with LocalCluster((ASKED, "bob", LOST), folder=tmp_path / "cluster", overrides=SHORT_LIVED) as cluster:
        client = cluster[ASKED].client
        client.create_stream(READINGS)
        options = {"path": str(readings[0]), "replay": 200.0}
        client.attach_source(SourceDeclaration(stream="readings", name="one", node=ASKED, connector="file", options=options))
        sink = SinkSpec(kind="file", options={"path": str(tmp_path / "out.csv")})
        info = submit(
            cluster[ASKED],
            sql=SQL,
            name="anew",
            strategy="consumer",
            decompose="never",
            sink=sink,
            allow_restart_from_sources=True,
        )
        wait_for(lambda: (client.query("anew").rows or 0) > 0, "the first rows come")
        for _ in client.move_operator(info.id, info.operators[-1].id, LOST):
            pass
        before = client.query("anew").rows or 0
        wait_for(lambda: (client.query("anew").rows or 0) > before, "rows come from there")
        kill(cluster[LOST], "all")
        cluster[LOST].lose_data()
        wait_for(lambda: "no answer from cyd" in client.query("anew").reason, lambda: client.query("anew").reason)
        cluster[LOST].start()
        cluster[LOST].wait_ready()
        wait_for(lambda: client.query("anew").uid != info.uid, lambda: client.query(info.uid).reason)
        assert client.query(info.uid).state == "failed"
        assert "out.restart1.csv, a new file" in client.query("anew").restart
        wait_for(lambda: client.query("anew").state == "finished", lambda: client.query("anew").reason)
        got = duckdb.sql(f"SELECT n, total FROM read_csv('{tmp_path / 'out.restart1.csv'}') ORDER BY ALL").fetchall()
        assert got == duckdb.sql(TEXT.format(readings[0])).fetchall()
