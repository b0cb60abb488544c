"""Names and uids of queries: one live query of a name, names used again, and ends that reach the right parts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.leak_check import leaks
from sbon_node.model.records import QueryRecord
from sbon_protocol.api.queries import QueryInfo, SinkSpec, Submission
from sbon_protocol.api.query_ids import name_of, new_uid
from sbon_protocol.calls import ComponentsDestroyed, DestroyComponents
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import SQL, ask, declare, in_cluster, source_at, state_of, submit, submitted, uid_of


async def clean(cluster: SimulatedCluster) -> None:
    """Wait until no node has anything left of any query."""
    while await leaks(cluster):
        await cluster.sleep(1)


def record(cluster: SimulatedCluster, at: str, uid: str) -> QueryRecord | None:
    return cluster.at(at).daemon.ownership.records.get(uid)


async def stop(cluster: SimulatedCluster, at: str, query: str = "q") -> QueryInfo:
    info: QueryInfo = await ask(cluster, at, cluster.at(at).daemon.queries.lookup.stop(query))
    return info


def test_a_uid_has_the_name_in_it(tmp_path: Path) -> None:
    rng = random.Random(1)
    for name in ("q", "my-query", "a1-b2-abcdef"):
        assert name_of(new_uid(name, rng)) == name
    for alone in ("q", "my-query", "my-second"):
        assert name_of(alone) == alone


@pytest.mark.one_part_per_commit("submissions of one name at once", parts=6)
@pytest.mark.parametrize("seed", range(4))
def test_of_two_submissions_of_a_name_at_once_one_is_accepted(tmp_path: Path, seed: int) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        await cluster.until(lambda: all("numbers" in cluster.at(at).daemon.ownership.catalogue.entries for at in "bc"))
        both = [cluster.call(at, submit(cluster, at, None, consumer="d")) for at in "bc"]
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        refused = [one for one in outcomes if isinstance(one, SbonError)]
        assert [one.code for one in refused] == ["query-exists"]
        (listed,) = await ask(cluster, "d", cluster.at("d").daemon.queries.lookup.all())
        assert (listed.id, listed.state) == ("q", "running")

    in_cluster(tmp_path, "abcd", test, seed=seed)


def test_a_name_is_taken_though_the_only_node_that_has_the_query_is_silent(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=10_000))
        await submitted(cluster, "a", None)
        for other in "bcd":
            cluster.network.cut("a", other, both=True)
        with pytest.raises(SbonError) as refused:
            await submitted(cluster, "b", None)
        # Which of the two depends on where the name is kept.
        assert refused.value.code in ("query-exists", "no-majority")

    in_cluster(tmp_path, "abcd", test)


def test_what_a_submission_is_stopped_by_is_not_a_name_that_another_query_has(tmp_path: Path) -> None:
    """Its command stops it if the submission is refused, which is known only after the first step."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=10_000))
        await submitted(cluster, "a", None)
        (other,) = (at for at in "bcd" if record(cluster, at, uid_of(cluster)) is None)

        steps: list[str] = []

        async def refused_submission() -> None:
            async for event in cluster.at(other).daemon.submitting.submitter.submit(
                Submission(sql=SQL, name="q", sink=SinkSpec())
            ):
                steps.append(event.query)

        with pytest.raises(SbonError, match="q"):
            await ask(cluster, other, refused_submission())
        first = steps[0]
        assert name_of(first) == "q"
        with pytest.raises(SbonError) as refused:
            await stop(cluster, other, first)
        assert refused.value.code == "unknown-query"
        assert (await state_of(cluster, "a")).state == "running"

    in_cluster(tmp_path, "abcd", test)


def test_a_name_is_free_once_its_query_is_over(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        first = await submitted(cluster, "a", tmp_path / "first.ndjson", strategy="producer")
        with pytest.raises(SbonError, match="there is a query 'q' already"):
            await submitted(cluster, "c", None)
        await stop(cluster, "b")
        second = await submitted(cluster, "c", tmp_path / "second.ndjson", strategy="producer")
        assert (first.id, second.id) == ("q", "q")
        assert first.uid != second.uid
        for at in "abc":
            assert (await state_of(cluster, at)).uid == second.uid
            assert (await state_of(cluster, at, first.uid)).state == "stopped"
            assert [info.uid for info in await ask(cluster, at, cluster.at(at).daemon.queries.lookup.all())] == [second.uid]
        while (await state_of(cluster, "a")).state == "running":
            await cluster.sleep(1)
        assert len((tmp_path / "second.ndjson").read_text().splitlines()) == 100
        await clean(cluster)

    in_cluster(tmp_path, "abc", test)


def test_the_end_of_a_query_leaves_its_successor_of_the_same_name_alone(tmp_path: Path) -> None:
    """The host is down while the first ends, so that it learns of it when the second runs there."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=300))
        first = await submitted(cluster, "a", tmp_path / "first.ndjson", consumer="b", strategy="consumer")
        cluster.crash(cluster.at("b"))
        assert (await stop(cluster, "a")).state == "stopped"
        second = await submitted(cluster, "a", tmp_path / "second.ndjson", consumer="a", strategy="consumer")
        cluster.boot(cluster.at("b"))
        await cluster.together()
        while not (one := record(cluster, "a", first.uid)) or not one.cleaned:
            await cluster.sleep(1)
        while (info := await state_of(cluster, "b")).state == "running":
            await cluster.sleep(1)
        assert (info.uid, info.state, info.rows) == (second.uid, "finished", 300)
        assert len((tmp_path / "second.ndjson").read_text().splitlines()) == 300
        await clean(cluster)

    in_cluster(tmp_path, "abc", test)


def test_the_last_count_outlives_a_lost_answer_and_a_crash(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        await submitted(cluster, "a", tmp_path / "out.ndjson", consumer="c", strategy="producer")
        uid = uid_of(cluster)
        while not (await state_of(cluster, "a")).rows:
            await cluster.sleep(0.5)
        call = DestroyComponents(query=uid, components=(f"{uid}.sink",))
        context = cluster.at("a").daemon.context
        first = await ask(cluster, "a", context.ask("c", call, ComponentsDestroyed))
        assert first.rows
        cluster.crash(cluster.at("c"))
        cluster.boot(cluster.at("c"))
        await cluster.together()
        again = await ask(cluster, "a", context.ask("c", call, ComponentsDestroyed))
        assert again == first
        assert len((tmp_path / "out.ndjson").read_text().splitlines()) == first.rows

    in_cluster(tmp_path, "abc", test)


def test_a_tombstone_stays_until_all_hosts_know_of_the_end(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a"))
        await submitted(cluster, "a", None, consumer="b", strategy="consumer")
        uid = uid_of(cluster)
        cluster.crash(cluster.at("b"))
        await stop(cluster, "a")
        with pytest.raises(SbonError, match="do not know of their end") as refused:
            await submitted(cluster, "a", None, name="other")
        assert refused.value.code == "too-many-queries"
        assert record(cluster, "a", uid) is not None
        cluster.boot(cluster.at("b"))
        await cluster.together()
        await clean(cluster)
        await submitted(cluster, "a", None, name="other")
        assert record(cluster, "a", uid) is None

    in_cluster(tmp_path, "ab", test, max_queries=1)
