"""Sharing while something goes wrong: the query gets the rows that it would get alone, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.queries.submitting.reuse import MOST_ROUNDS, HostedStream, RunningOperators
from sbon_protocol.api.operators import Computation, PlannedInput
from sbon_protocol.api.queries import SinkSpec, Submission
from sbon_protocol.api.sharing import OfferedOperator, StreamOffer
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import ask, declare, in_cluster, source_at, state_of, submitted, uid_of

THIRD = "SELECT id, v FROM numbers WHERE id % 3 = 0"
WIDE = "SELECT id, v, ts FROM numbers WHERE id > 100"
ROWS = 300
FEW = 150
LONG = 100_000


async def finished(cluster: SimulatedCluster, name: str) -> None:
    while (info := await state_of(cluster, "a", name)).state == "running":
        await cluster.clock.sleep(0.5)
    assert info.state == "finished", info.reason


def numbers(path: Path) -> list[int]:
    return sorted(json.loads(line)["id"] for line in path.read_text().splitlines())


async def registered(cluster: SimulatedCluster, name: str) -> tuple[str, ...]:
    uid = uid_of(cluster, name)
    register = await ask(cluster, "a", cluster.at("a").daemon.ownership.operators.read(uid, f"{uid}.b0"))
    return tuple(register.queries)


def test_a_source_is_attached_while_the_query_is_planned_again(tmp_path: Path) -> None:
    """The operators of the plan have other ids then."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "b", source_at("b", rows=ROWS, rate=60.0))
        for name, sql in (("first", THIRD), ("other", WIDE)):
            await submitted(cluster, "b", None, name=name, sql=sql)
        planning: Any = cluster.at("c").daemon.queries.planning
        plain = planning.propose

        async def propose(spec: Any, query: str, times: Any = None, offers: Any = (), **options: Any) -> Any:
            if offers and len(planning._catalogue.entry("numbers").sources) < 2:
                await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.attach(source_at("a", rows=FEW, rate=60.0)))
                while len(planning._catalogue.entry("numbers").sources) < 2:
                    await cluster.clock.sleep(0.1)
            return await plain(spec, query, times, offers, **options)

        planning.propose = propose
        await submitted(cluster, "c", tmp_path / "second.ndjson", name="second", sql=THIRD)
        await finished(cluster, "second")
        assert numbers(tmp_path / "second.ndjson") == sorted([*range(0, ROWS, 3), *range(0, FEW, 3)])

    in_cluster(tmp_path, "abc", test)


def test_offers_that_cannot_be_planned_refuse_no_query(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=ROWS, rate=60.0))
        await submitted(cluster, "b", None, name="first", sql=WIDE)
        planner: Any = cluster.at("b").daemon.context.planner
        plain = planner.plan

        async def plan(request: Any, analyse: Any, recall: Any) -> Any:
            if request.offers:
                raise SbonError("planning-too-long", "planning takes more than 3 s of processor time", where="sql")
            return await plain(request, analyse, recall)

        planner.plan = plan
        await submitted(cluster, "b", tmp_path / "second.ndjson", name="second", sql="SELECT id FROM numbers WHERE id > 200")
        await finished(cluster, "second")
        assert numbers(tmp_path / "second.ndjson") == list(range(201, ROWS))

    in_cluster(tmp_path, "ab", test)


@pytest.mark.one_part_per_commit("moments at which a submission ends", parts=3)
@pytest.mark.parametrize("moment", ["refused", "sharing", "referring"])
def test_a_submission_that_ends_early_gives_its_references_back(tmp_path: Path, moment: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=LONG, rate=60.0))
        await submitted(cluster, "b", None, name="first", sql=THIRD)
        before = await registered(cluster, "first")
        daemon: Any = cluster.at("c").daemon
        tasks: list[asyncio.Task[None]] = []

        async def submit() -> None:
            sink = SinkSpec(kind="stream", options={"stream": "made"})  # THIRD has no event time.
            submission = Submission(sql=THIRD, name="second", **({"sink": sink} if moment == "refused" else {}))
            events = daemon.submitting.submitter.submit(submission)
            async for event in events:
                if getattr(event, "step", "") == "sharing" == moment:
                    await events.aclose()
                    break

        plain = daemon.ownership.operators.refer

        async def refer(operator: str, query: str) -> Any:
            register = await plain(operator, query)
            tasks[0].cancel()
            await asyncio.sleep(0)
            return register

        if moment == "referring":
            daemon.ownership.operators.refer = refer

        async def begin() -> None:
            tasks.append(asyncio.ensure_future(submit()))
            await asyncio.gather(*tasks, return_exceptions=True)

        await ask(cluster, "c", begin())
        daemon.ownership.operators.refer = plain
        await cluster.clock.sleep(5.0)
        assert await registered(cluster, "first") == before

    in_cluster(tmp_path, "abc", test)


def test_a_host_without_room_keeps_no_subscription(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=LONG, rate=60.0))
        await submitted(cluster, "b", None, name="first", sql=THIRD)
        operator = f"{uid_of(cluster, 'first')}.b0"
        (host,) = (node for node in "abc" if operator in cluster.at(node).daemon.hosting.operators.hosted())
        operators: Any = cluster.at(host).daemon.hosting.operators
        plain = operators.keep

        def keep(hosted: Any) -> None:
            if hosted.references:
                raise SbonError("disk-full", "no room")
            plain(hosted)

        operators.keep = keep
        await submitted(cluster, "c", None, name="second", sql=THIRD)
        operators.keep = plain
        assert not (await state_of(cluster, "c", "second")).shared
        assert list(cluster.at(host).daemon.outbox.link_counts(operator).links) == [f"{uid_of(cluster, 'first')}.sink"]

    in_cluster(tmp_path, "abc", test)


def test_made_up_inputs_take_no_time_and_give_nothing() -> None:
    """Each operator is said to read the one below it many times, and the last one itself."""
    source = "source/s@1/a"
    found = {source: HostedStream("x", StreamOffer(stream=source, earliest=1))}
    below = source
    for number in range(10 * MOST_ROUNDS):
        name = f"q.o{number}"
        reads = PlannedInput(stream=below, schema=())
        made = Computation(id=name, fragment="", schema=(), inputs=(reads,) * 50, signature="s")
        found[name] = HostedStream("x", StreamOffer(stream=name, earliest=1, operator=OfferedOperator(computation=made)))
        below = name
    itself = Computation(id="q.x", fragment="", schema=(), inputs=(PlannedInput(stream="q.x", schema=()),), signature="s")
    found["q.x"] = HostedStream("x", StreamOffer(stream="q.x", earliest=1, operator=OfferedOperator(computation=itself)))
    running = RunningOperators(found)
    readable = {one.id for one in running.readable("local", (), from_now=False)}
    assert "q.o0" in readable
    assert "q.x" not in readable
    assert "q.x" not in running.whole()
