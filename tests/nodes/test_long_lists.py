"""A node with its greatest number of large records: it lists them all, and their names are taken."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.ownership.consensus.acceptor import AcceptorRecord
from sbon_node.ownership.consensus.states import NO_BALLOT, Accepted
from sbon_node.ownership.store.query_keys import key_of
from sbon_protocol.api.queries import SinkSpec
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at, submitted, uid_of

MOST = 2048
"""Value of ``control.max_queries``."""


async def filled(cluster: SimulatedCluster) -> None:
    """``a`` holds as many records as it may, of queries that have failed at length, in letters of three bytes each."""
    await declare(cluster, "a", source_at("b"))
    await submitted(cluster, "a", None, consumer="c")
    records = cluster.at("a").daemon.ownership.records
    one = msgspec.structs.replace(
        records.get(uid_of(cluster)),
        state="failed",
        sql="SELECT '" + "漢" * 1000 + "' FROM numbers",
        reason="漢" * 500,
        sink=SinkSpec(kind="http", options={"url": "http://localhost/" + "x" * 4000}),
        cleaned=True,
        version=1,
    )
    acceptors = cluster.at("a").daemon.ownership.acceptors
    kept = acceptors.state(key_of(one.id))
    assert kept is not None
    for i in range(MOST - 1):
        record = msgspec.structs.replace(one, id=f"q{i}-aaaaaa", name=f"q{i}", submitted_ms=i)
        records._known[record.id] = record
        acceptors._records[key_of(record.id)] = AcceptorRecord(NO_BALLOT, Accepted(NO_BALLOT, kept))


def test_all_records_a_node_may_hold_are_listed(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await filled(cluster)
        found = await ask(cluster, "c", cluster.at("c").daemon.queries.lookup.all())
        assert (len(found), found.unanswered) == (MOST, ())
        ages = [info.submitted_ms for info in found]
        assert (ages[:-1], ages[-1]) == (sorted(ages[:-1]), 0), "the oldest first, and last the one of unknown age"
        cut = next(info for info in found if info.id == "q7")
        assert cut.sql.startswith("SELECT '漢漢")
        assert cut.sql.endswith("漢…")
        assert max(len(text.encode()) for info in found for text in (info.sql, info.reason)) <= 300

    in_cluster(tmp_path, "abc", test, max_queries=MOST)


def test_a_name_is_taken_though_a_list_of_all_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission asks for the name alone."""
    monkeypatch.setattr("sbon_node.queries.describing.lookup.SUMMARY_BYTES", 10**6)

    async def test(cluster: SimulatedCluster) -> None:
        await filled(cluster)
        found = await ask(cluster, "c", cluster.at("c").daemon.queries.lookup.all())
        assert [one.node for one in found.unanswered] == ["a"]
        with pytest.raises(SbonError) as refused:
            await submitted(cluster, "c", None, name="q")
        assert refused.value.code == "query-exists"

    in_cluster(tmp_path, "abc", test, max_queries=MOST)
