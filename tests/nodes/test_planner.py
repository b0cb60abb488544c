"""The planner process: no text blocks the event loop, exceeds the limits, or delays other texts for good."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sbon_lab.simulation.engine.evaluate import output_schema
from sbon_lab.simulation.inline_planner import InlinePlanner
from sbon_node.base.clock import Clock
from sbon_node.model.measurements import nothing_measured
from sbon_node.model.schema import parse_schema
from sbon_node.planning.process import planner as planner_process
from sbon_node.planning.process.planner import CLIENT, PlanRequest, ProcessPlanner
from sbon_node.planning.sql.settings import QuerySettings
from sbon_protocol.api.catalogue import CatalogEntry, SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import StateChoice
from sbon_protocol.api.plan import Plan
from sbon_protocol.errors import SbonError

SCHEMA = parse_schema("ts timestamp, k string, id bigint, v double")
CATALOG = {
    name: CatalogEntry(
        declaration=StreamDeclaration(name=name, schema=SCHEMA, event_time="ts"),
        sources=(SourceDeclaration(stream=name, name="a", node="a", connector="file"),),
    )
    for name in ("s", "other")
}
NEAR = "ts BETWEEN a.ts - INTERVAL 1 HOUR AND a.ts"
DOUBLING = "SELECT * FROM " + "(SELECT ts, k, id, v*v*v AS v FROM " * 12 + "s" + ")" * 12
"""480 characters that become an expression of half a million parts."""
NASTY = {
    "1,400 AND": "SELECT * FROM s WHERE " + " AND ".join(f"v>{i}" for i in range(1400)),
    "1,400 OR": "SELECT * FROM s WHERE " + " OR ".join(f"v>{i}" for i in range(1400)),
    "nested brackets": "SELECT * FROM s WHERE " + " AND ".join("(" * 30 + "v>1" + ")" * 30 for _ in range(80)),
    "a long IN list": "SELECT * FROM s WHERE id IN (" + ",".join(map(str, range(2900))) + ")",
    "a deep union": " UNION ALL ".join(f"SELECT ts, k, id, v+{i} AS v FROM s" for i in range(16)),
    "1,000 unions": " UNION ALL ".join("SELECT k FROM s" for _ in range(1000)),
    "CTEs that double": "WITH c0 AS (SELECT * FROM s)"
    + "".join(
        f", c{i} AS (SELECT ts,k,id,v+{i} AS v FROM c{i - 1} UNION ALL SELECT ts,k,id,v-{i} AS v FROM c{i - 1})"
        for i in range(1, 8)
    )
    + " SELECT * FROM c7",
    "15 joins": "SELECT a.ts, a.k FROM s a " + " ".join(f"JOIN s b{i} ON a.id=b{i}.id AND b{i}.{NEAR}" for i in range(15)),
    "400 conditions of ON": f"SELECT a.ts, b.k FROM s a LEFT JOIN s b ON a.id=b.id AND b.{NEAR} AND "
    + " AND ".join(f"a.v>{i}" for i in range(400)),
    "an expression that doubles": DOUBLING,
    "2,000 NOT": "SELECT * FROM s WHERE " + "NOT " * 2000 + "v > 1",
    "a long CASE": "SELECT CASE " + " ".join(f"WHEN v>{i} THEN {i}" for i in range(800)) + " END AS v FROM s",
}
Test = Callable[[ProcessPlanner], Awaitable[None]]


async def analyse(fragment: str, inputs: tuple[Schema, ...], /) -> Schema:
    return output_schema(fragment, inputs)


def request(text: str) -> PlanRequest:
    return PlanRequest(text=text, catalog=CATALOG, query="q")


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def planned(planner: ProcessPlanner | InlinePlanner, text: str, analysis: Any = analyse) -> Plan | str:
    """The plan, or the code of the refusal."""
    try:
        return await planner.plan(request(text), analysis, nothing_measured)
    except SbonError as error:
        return error.code


def with_planner(test: Test, **settings: Any) -> None:
    async def run() -> None:
        planner = ProcessPlanner(QuerySettings(**settings), Clock())
        try:
            await test(planner)
        finally:
            await planner.close()

    asyncio.run(run())


async def as_it_is(fragment: str, inputs: tuple[Schema, ...], /) -> Schema:
    """An analysis that takes no time: the schema is that of the stream, which most of the texts here hand on."""
    return SCHEMA


@pytest.mark.one_part_per_commit("nasty texts", parts=16)
@pytest.mark.parametrize("name", NASTY)
def test_a_nasty_text_is_planned_or_refused_by_a_named_limit_while_the_loop_runs(name: str) -> None:
    """The loop's turns while a text is planned, which has none of them where planning is on the loop."""

    async def test(planner: ProcessPlanner) -> None:
        turns = 0
        planning = asyncio.ensure_future(planned(planner, NASTY[name], as_it_is))
        while not planning.done():
            turns += 1
            await asyncio.sleep(0.001)
        found = planning.result()
        assert turns > 3
        assert isinstance(found, Plan) or found in ("planning-too-long", "planning-too-large", "too-deep", "query-too-long")
        assert isinstance(await planned(planner, "SELECT k FROM s"), Plan)

    with_planner(test, plan_cpu_s=1.0, max_text=30_000)


@pytest.mark.one_part_per_commit("words between conditions", parts=8)
@pytest.mark.parametrize("name", ["1,400 AND", "1,400 OR"])
def test_1400_conditions_are_one_operator(name: str) -> None:
    async def test(planner: ProcessPlanner) -> None:
        found = await planned(planner, NASTY[name], as_it_is)
        assert isinstance(found, Plan)
        assert [one.fragment.count("`v` > ") + one.fragment.count("v > ") for one in found.operators] == [1400]

    with_planner(test, plan_cpu_s=60.0)  # what is asserted is the plan; a busy machine may take long


def test_the_process_hears_where_operators_keep_their_state() -> None:
    async def test(planner: ProcessPlanner) -> None:
        text = f"SELECT a.k, b.v FROM s a LEFT JOIN other b ON a.id = b.id AND b.{NEAR}"
        choices: tuple[StateChoice, ...] = ("rocksdb", "hdfs")
        for choice in choices:
            asked = PlanRequest(text=text, catalog=CATALOG, query="q", state_provider=choice)
            plan = await planner.plan(asked, analyse, nothing_measured)
            assert [one.state_provider for one in plan.operators if one.has_state] == [choice]

    with_planner(test)


def test_the_process_gets_what_views_read() -> None:
    def view(name: str, sql: str) -> CatalogEntry:
        return CatalogEntry(declaration=StreamDeclaration(name=name, schema=SCHEMA, event_time="ts", sql=sql))

    catalog = {**CATALOG, "late": view("late", "SELECT * FROM inner_1"), "inner_1": view("inner_1", "SELECT * FROM OTHER")}

    async def test(planner: ProcessPlanner) -> None:
        plan = await planner.plan(PlanRequest(text="SELECT k FROM late", catalog=catalog, query="q"), analyse, nothing_measured)
        assert {one.source.stream for one in plan.sources} == {"other"}

    with_planner(test)


def test_the_process_and_inline_planning_agree() -> None:
    texts = (
        "SELECT k, v * 2 AS w FROM s WHERE id > 3",
        f"SELECT a.k, b.v FROM s a LEFT JOIN other b ON a.id = b.id AND b.{NEAR}",
        "SELECT nothing FROM s",
        "SELECT k FROM absent",
        "SELECT k FROM othr",
    )

    async def test(planner: ProcessPlanner) -> None:
        inline = InlinePlanner(QuerySettings())
        for text in texts:
            errors: list[SbonError] = []
            plans: list[Plan] = []
            for one in (planner, inline):
                try:
                    plans.append(await one.plan(request(text), analyse, nothing_measured))
                except SbonError as error:
                    errors.append(error)
            assert plans[:1] == plans[1:]
            assert [(str(e), e.code, e.details) for e in errors[:1]] == [(str(e), e.code, e.details) for e in errors[1:]]
            assert len(plans) + len(errors) == 2

    with_planner(test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
@pytest.mark.parametrize(
    "settings, code, setting",
    [
        ({"plan_cpu_s": 0.3}, "planning-too-long", "query.plan_cpu_s"),
        ({"planner_memory_mb": 64, "plan_cpu_s": 60.0}, "planning-too-large", "query.planner_memory_mb"),
    ],
)
def test_a_limit_is_named_and_the_next_text_is_planned(settings: dict[str, Any], code: str, setting: str) -> None:
    async def test(planner: ProcessPlanner) -> None:
        with pytest.raises(SbonError, match=setting) as refused:
            await planner.plan(request(DOUBLING), analyse, nothing_measured)
        assert refused.value.code == code
        assert isinstance(await planned(planner, "SELECT k FROM s"), Plan)

    with_planner(test, **settings)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_plan_that_is_too_large_names_its_limit() -> None:
    async def test(planner: ProcessPlanner) -> None:
        with pytest.raises(SbonError, match=r"query\.max_plan_bytes"):
            await planner.plan(request(NASTY["CTEs that double"]), as_it_is, nothing_measured)

    with_planner(test, max_plan_bytes=20_000)


def test_depth_and_brackets_are_set_in_the_configuration() -> None:
    async def test(planner: ProcessPlanner) -> None:
        for text, setting in (
            ("SELECT v" + " + 1" * 20 + " AS v FROM s", "query.max_depth"),
            ("SELECT " + "(" * 9 + "v" + ")" * 9 + " AS v FROM s", "query.max_brackets"),
        ):
            with pytest.raises(SbonError, match=setting) as refused:
                await planner.plan(request(text), analyse, nothing_measured)
            assert refused.value.code == "too-deep"

    with_planner(test, max_depth=10, max_brackets=8)


def test_peers_fragments_are_checked_by_the_same_limits() -> None:
    async def test(planner: ProcessPlanner) -> None:
        await planner.check_fragment("SELECT k FROM in0", 1)
        for fragment, code in (
            ("SELECT reflect('a') FROM in0", "forbidden-function"),
            ("SELECT k FROM in1", "forbidden-relation"),
            ("SELECT " + "NOT " * 2000 + "k FROM in0", "too-deep"),
        ):
            with pytest.raises(SbonError) as refused:
                await planner.check_fragment(fragment, 1)
            assert refused.value.code == code

    with_planner(test)


def test_there_is_no_process_before_the_first_text_and_none_after_a_while() -> None:
    async def test(planner: ProcessPlanner) -> None:
        assert planner.pid is None
        assert isinstance(await planned(planner, "SELECT k FROM s"), Plan)
        pid = planner.pid
        assert pid is not None
        await until(lambda: planner.pid is None)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert isinstance(await planned(planner, "SELECT k FROM s"), Plan)

    with_planner(test, planner_idle_s=0.1)


def test_a_process_without_a_processor_is_not_blamed_on_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(planner: ProcessPlanner) -> None:
        assert isinstance(await planned(planner, "SELECT k FROM s"), Plan)
        monkeypatch.setattr(planner_process, "START_S", 0.5)
        monkeypatch.setattr(planner_process, "PATIENCE", 0.0)
        assert planner.pid is not None
        os.kill(planner.pid, signal.SIGSTOP)
        with pytest.raises(SbonError, match=r"0\.0 s of processor time in 0\.5 s: this machine is overloaded") as refused:
            await planner.plan(request("SELECT k FROM s"), analyse, nothing_measured)
        assert refused.value.code == "planner-busy"
        monkeypatch.setattr(planner_process, "START_S", 60.0)
        assert isinstance(await planned(planner, "SELECT k FROM s"), Plan)

    with_planner(test)


def test_a_process_that_is_killed_is_replaced_and_plans_it_kept_are_begun_again() -> None:
    async def test(planner: ProcessPlanner) -> None:
        asked = 0

        async def killed(fragment: str, inputs: tuple[Schema, ...], /) -> Schema:
            nonlocal asked
            asked += 1
            assert planner.pid is not None
            os.kill(planner.pid, signal.SIGKILL)
            return output_schema(fragment, inputs)

        found = await planned(planner, "SELECT k FROM s", killed)
        assert found == await InlinePlanner(QuerySettings()).plan(request("SELECT k FROM s"), analyse, nothing_measured)
        assert asked == 1

    with_planner(test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_client_is_bounded_and_waits_behind_itself_alone() -> None:
    async def test(planner: ProcessPlanner) -> None:
        async def of(client: str, text: str) -> tuple[Plan | str, float]:
            CLIENT.set(client)
            return await planned(planner, text, as_it_is), time.monotonic()

        async with asyncio.TaskGroup() as group:
            hostile = [group.create_task(of("hostile", DOUBLING)) for _ in range(8)]
            await asyncio.sleep(0)
            other = group.create_task(of("other", "SELECT k FROM s"))
        codes = sorted(str(task.result()[0]) for task in hostile)
        assert codes == ["planning-too-long"] * 7 + ["too-many-plans"]
        assert isinstance(other.result()[0], Plan)
        ends = sorted(task.result()[1] for task in hostile)
        assert other.result()[1] < ends[-2], "each of its three steps waited for one of them at most"

    with_planner(test, plan_cpu_s=0.2, plans_per_client=7)


def test_all_clients_together_are_bounded() -> None:
    async def test(planner: ProcessPlanner) -> None:
        analysed = asyncio.Event()

        async def slow(fragment: str, inputs: tuple[Schema, ...], /) -> Schema:
            await analysed.wait()
            return SCHEMA

        async def of(client: str) -> Plan | str:
            CLIENT.set(client)
            return await planned(planner, "SELECT k FROM s", slow)

        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(of(client)) for client in "ab"]
            await asyncio.sleep(0)
            assert await asyncio.wait_for(of("c"), 10.0) == "planner-busy"
            analysed.set()
        assert all(isinstance(task.result(), Plan) for task in waiting)
        assert isinstance(await of("c"), Plan)

    with_planner(test, max_plans=2)


def test_a_caller_that_goes_away_leaves_the_next_one_its_own_answer() -> None:
    async def test(planner: ProcessPlanner) -> None:
        await planned(planner, "SELECT k FROM s")
        pid, takes_long = planner.pid, "SELECT * FROM s WHERE " + " AND ".join(f"v>{i}" for i in range(200))
        for pause_s in (0.0, 0.001, 0.003, 0.01, 0.03, 0.1):
            given_up = asyncio.ensure_future(planned(planner, takes_long, as_it_is))
            await asyncio.sleep(pause_s)
            given_up.cancel()
            for column in ("id", "k"):
                found = await planned(planner, f"SELECT {column} FROM s")
                assert isinstance(found, Plan)
                assert [one.name for one in found.schema] == [column]
            await asyncio.wait([given_up])
        assert planner.pid == pid, "a reply that is left confuses the process, which ends"

    with_planner(test)


def test_nothing_is_planned_once_it_is_closed() -> None:
    async def run() -> None:
        planner = ProcessPlanner(QuerySettings(), Clock())
        working = asyncio.ensure_future(planned(planner, DOUBLING))
        await until(lambda: planner.pid is not None)
        await planner.close()
        assert await working == "stopping"
        assert await planned(planner, "SELECT k FROM s") == "stopping"
        assert planner.pid is None

    asyncio.run(run())
