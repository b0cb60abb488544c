"""A node that cannot store: it continues, reports it, and stores pending changes as soon as it can."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.loop import run
from sbon_lab.simulation.query_run import record_of
from sbon_node.base.clock import Clock
from sbon_node.base.store import RecordStore
from sbon_node.net.transport import Address
from sbon_node.overlay.membership.settings import MembershipSettings
from sbon_node.overlay.rejoin import Rejoin, StoredPeer
from sbon_node.ownership.consensus.acceptor import AcceptorRecord
from sbon_node.ownership.queries import decoded
from sbon_node.ownership.store.query_keys import QUERY
from sbon_protocol.api.queries import Progress, SinkSpec, Submission
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import SQL, ask, declare, in_cluster, source_at, state_of, submitted


def refuse(store: RecordStore, *, writes: bool) -> None:
    """sqlite itself takes no write from now on, or takes them again."""
    store._db.execute(f"PRAGMA query_only={int(writes)}")


class Others:
    """Members that the test names."""

    def __init__(self) -> None:
        self.members: dict[str, Address] = {}

    @property
    def others_alive(self) -> int:
        return len(self.members)

    def is_alive(self, name: str) -> bool:
        return name in self.members

    def address_of(self, name: str) -> Address:
        return self.members[name]

    async def join(self, seeds: object) -> int:
        raise SbonError("join-failed", "no node answers")


def in_virtual_time(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run(lambda loop, rng: body(), seed=1)


def test_whom_it_met_and_who_left_meanwhile_is_stored_once_it_can_be(tmp_path: Path) -> None:
    async def body() -> None:
        store, others, clock = RecordStore(tmp_path / "node.db"), Others(), Clock()
        settings = MembershipSettings(rejoin_s=1.0, rejoin_max_s=30.0)
        rejoin = Rejoin(others, store=store, clock=clock, rng=random.Random(1), seeds=(), settings=settings)
        for number in (1, 2):
            others.members[f"n{number}"] = Address(f"10.0.0.{number}", 7400)
        rejoin.member_changed("n1", "joined")
        refuse(store, writes=True)
        rejoin.member_changed("n2", "joined")
        others.members["n1"] = Address("10.0.0.9", 7400)
        rejoin.member_changed("n1", "updated")
        await clock.sleep(100)
        assert store.all("peer", StoredPeer) == {"n1": StoredPeer(address="10.0.0.1:7400")}
        refuse(store, writes=False)
        await clock.sleep(31)
        assert store.all("peer", StoredPeer) == {
            "n1": StoredPeer(address="10.0.0.9:7400"),
            "n2": StoredPeer(address="10.0.0.2:7400"),
        }
        refuse(store, writes=True)
        rejoin.member_changed("n2", "left")
        refuse(store, writes=False)
        await clock.sleep(31)
        assert list(store.all("peer", StoredPeer)) == ["n1"]
        await rejoin.close()
        store.close()

    in_virtual_time(body)


def test_a_stopped_query_is_cleaned_though_its_record_cannot_be_stored_for_a_time(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=10_000, rate=20.0))
        await submitted(cluster, "a", tmp_path / "out.csv", strategy="producer")
        cluster.crash(cluster.nodes["b"])
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        store = cluster.at("a").daemon.context.store
        refuse(store, writes=True)
        cluster.boot(cluster.nodes["b"])
        await cluster.clock.sleep(120)
        refuse(store, writes=False)
        assert not cluster.nodes["b"].operators(), "its host was notified all the same"
        await cluster.clock.sleep(120)
        cluster.crash(cluster.nodes["a"])
        with closing(RecordStore(cluster.nodes["a"].disk.folder / "node.db")) as stored:
            records = stored.all("register", AcceptorRecord)
        (accepted,) = (record.accepted for key, record in records.items() if key.startswith(QUERY))
        assert accepted is not None
        assert decoded(accepted.state).cleaned
        cluster.boot(cluster.nodes["a"])
        await cluster.together()
        assert (await state_of(cluster, "a")).state == "stopped"

    in_cluster(tmp_path, "ab", test)


def test_a_refused_submission_is_undone_once_it_can_be(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        daemon = cluster.at("a").daemon

        async def refused() -> SbonError:
            try:
                async for event in daemon.submitting.submitter.submit(Submission(sql=SQL, name="q", sink=SinkSpec())):
                    if isinstance(event, Progress) and event.step == "placed":
                        refuse(daemon.context.store, writes=True)
            except SbonError as error:
                return error
            raise AssertionError("the submission was accepted")

        error = await ask(cluster, "a", refused())
        assert error.code == "disk-error"
        trouble = daemon.context.store.trouble()
        assert trouble is not None
        assert "not-stored" in [reason.code for reason in daemon.operations.readiness().reasons]
        await cluster.clock.sleep(60)
        refuse(daemon.context.store, writes=False)
        await cluster.clock.sleep(60)
        assert record_of(cluster, "q") is None
        assert daemon.context.store.trouble() is None
        await submitted(cluster, "a", None)
        assert (await state_of(cluster, "a")).state == "running"

    in_cluster(tmp_path, "ab", test)
