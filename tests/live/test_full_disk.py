"""A full disk under a node's outbox: the operator stops with that reason, and loses nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.model import Submission
from sbon_cli.commands.queries.follow import Follower
from tests.live.world import World

pytestmark = [pytest.mark.live, pytest.mark.only_in_test_all("full disks of live nodes")]

SMALL = {"streams.outbox_max_bytes": 1_048_576, "streams.batch_span_bytes": 65_536}


def test_an_operator_without_room_waits_for_it(readings: list[Path]) -> None:
    with LocalCluster(["ada", "dee"], overrides=SHORT_LIVED, per_node={"dee": SMALL}) as cluster:
        world = World(cluster, readings)
        world.declare("full", replay=2000.0, node="ada")
        dee = cluster["dee"]
        sql = "SELECT site, n, value, note, sha2(concat(site, n), 256) AS digest FROM full"
        info = dee.client.submitted(Submission(sql=sql, strategy="consumer"))

        reasons: set[str] = set()
        deadline = time.monotonic() + 240
        while not any("no space for more frames" in reason for reason in reasons):
            assert time.monotonic() < deadline, reasons
            reasons |= {operator.reason for operator in dee.client.query(info.id).operators}
            time.sleep(0.1)

        rows: list[tuple[Any, ...]] = []
        assert Follower(dee.client, info.id, lambda frame: rows.extend(frame.rows)).run().state == "finished"

        assert sorted((row[0], row[1]) for row in rows) == sorted(world.answer("SELECT site, n FROM readings"))
