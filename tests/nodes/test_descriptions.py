"""Descriptions of a query arrive in time although nodes are out of reach, and mark unknown parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.context import Context
from sbon_node.hosting.sinks.open_sinks import OpenSinks
from sbon_node.hosting.sources.host import SourceHost
from sbon_node.model.records import QueryRecord
from sbon_node.net.peers import Caller
from sbon_node.queries.describing.describe import Description, Descriptions
from sbon_node.queries.driving import deploy
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.delivery import SinkReport
from sbon_protocol.api.explanations import Explanation
from sbon_protocol.api.queries import OperatorInfo
from sbon_protocol.api.streams import SourceInfo
from sbon_protocol.calls import (
    ComponentsDestroyed,
    ComponentStates,
    DescribeComponents,
    DestroyComponents,
    ListQueries,
    SourceStates,
)
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import UNHURRIED, ask, declare, in_cluster, plain, source_at, state_of, submitted


async def running(cluster: SimulatedCluster, tmp_path: Path) -> None:
    """``a`` keeps the record, ``b`` and ``c`` a source and an operator each, ``d`` the results."""
    await declare(cluster, "a", source_at("b", rows=1_000_000, rate=3.0), source_at("c", rows=1_000_000, rate=3.0))
    await submitted(cluster, "a", tmp_path / "out.csv", consumer="d", strategy="producer")
    while not (await state_of(cluster, "a")).rows:
        await cluster.clock.sleep(0.5)


@pytest.mark.one_part_per_commit("silent nodes of a shown query", parts=6)
@pytest.mark.parametrize("asked", ["a", "e"])
@pytest.mark.parametrize("silent", ["b", "d", "bcd"])
def test_a_query_is_shown_though_nodes_do_not_answer(tmp_path: Path, silent: str, asked: str) -> None:
    """Ask the query's leader, or another node; the silent nodes are cut off, which no node has noticed yet."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        for node in silent:
            for other in "ae":
                cluster.network.cut(other, node, both=True)
        info = await state_of(cluster, asked)
        assert info.state == "running"
        roles = {"d": ", the consumer, for which the rows wait"}
        reasons = [f"no answer from {node}{roles.get(node, '')}" for node in silent]
        assert info.reason.partition("; may be stale")[0] == "; ".join(reasons)
        states = {operator.node: (operator.state, operator.reason) for operator in info.operators}
        for node in "bc":
            assert states[node] == (("unreachable", f"no answer from {node}") if node in silent else ("running", ""))
        query_usage = await ask(cluster, asked, cluster.nodes[asked].daemon.queries.lookup.usage("q"))
        assert {line.source_node for line in query_usage.baseline} == {"b", "c"}
        assert all(line.latency_ms > 0 for line in query_usage.baseline)

    in_cluster(tmp_path, "abcde", test)


def test_a_query_says_for_which_consumer_it_waits_and_since_when(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        cluster.crash(cluster.nodes["d"])
        while cluster.at("a").daemon.membership.is_alive("d"):
            await cluster.clock.sleep(0.5)
        info = await state_of(cluster, "a")
        expected = r"no answer from d, the consumer, for which the rows wait: it is \w+ since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
        assert (info.state, re.match(expected, info.reason) is not None) == ("running", True), info.reason
        assert cluster.at("a").daemon.context.counters.snapshot()["description-missing"]

    in_cluster(tmp_path, "abcd", test)


def test_each_node_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered: Counter[str] = Counter()
    described = Descriptions._described

    async def counted(self: Descriptions, call: DescribeComponents, caller: Caller) -> object:
        answered[self._context.name] += call.decisions  # Without decisions, the leader asks for the history of usage.
        return await described(self, call, caller)

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        answered.clear()
        await ask(cluster, "e", cluster.nodes["e"].daemon.queries.lookup.usage("q"))
        assert answered == {"b": 1, "c": 1, "d": 1}

    monkeypatch.setattr(Descriptions, "_described", counted)
    in_cluster(tmp_path, "abcde", test)


def test_an_operator_that_its_host_has_given_up_is_lost(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        info = await state_of(cluster, "a")
        (lost,) = (operator.id for operator in info.operators if operator.node == "b")
        call = DestroyComponents(query=info.uid, components=(lost,))
        await ask(cluster, "a", cluster.at("a").daemon.context.ask("b", call, ComponentsDestroyed))
        info = await state_of(cluster, "a")
        states = {operator.node: (operator.state, operator.stats is None) for operator in info.operators}
        assert states == {"b": ("lost", True), "c": ("running", False)}
        assert info.reason == f"{lost} at b: b does not know it, as after the loss of its data directory"

    in_cluster(tmp_path, "abcd", test)


def test_a_node_is_believed_of_its_own_parts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described, lies = Descriptions._described, []

    async def swaps(self: Descriptions, call: DescribeComponents, caller: Caller) -> ComponentStates:
        """``d`` tells of parts of others what ``b`` and ``c`` do not."""
        answer = await described(self, call, caller)
        if self._context.name != "d":
            return answer
        operators = [
            OperatorInfo(id=f"{call.query}.b{number}", node="d", fragment="", state="failed", reason="a lie") for number in (0, 1)
        ]
        lies.append(call.query)
        source = SourceInfo(source=source_at("b"), state="failed: a lie", trouble="a lie")
        return msgspec.structs.replace(answer, operators=tuple(operators), sources=(source,))

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        info = await state_of(cluster, "a")
        assert lies
        assert sorted((plain(one.id), one.state) for one in info.operators) == [("q.b0", "running"), ("q.b1", "running")]
        assert (info.reason, [one.state for one in info.sources]) == ("", ["running", "running"])

    monkeypatch.setattr(Descriptions, "_described", swaps)
    in_cluster(tmp_path, "abcd", test)


def says(monkeypatch: pytest.MonkeyPatch, node: str, of: type, method: str, lie: Callable[[Any], Any]) -> None:
    """Replace the answer of ``node`` by a ``lie``."""
    answered = getattr(of, method)

    async def lies(self: Any, call: Any, caller: Caller) -> Any:
        answer = await answered(self, call, caller)
        return lie(answer) if self._context.name == node else answer

    monkeypatch.setattr(of, method, lies)


def test_sources_of_a_stream_are_described_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_another(answer: SourceStates) -> SourceStates:
        """The source of ``b``, as if it were there and as if it were here."""
        of_b = [SourceInfo(source=msgspec.structs.replace(source_at("b"), node=node), state="a lie") for node in "bc"]
        return msgspec.structs.replace(answer, sources=(*answer.sources, *of_b))

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        info = await ask(cluster, "a", cluster.at("a").daemon.hosting.sources.describe("numbers"))
        assert [(one.source.node, one.state) for one in info.sources] == [("b", "running"), ("c", "running")]

    says(monkeypatch, "c", SourceHost, "_handle_describe", of_another)
    in_cluster(tmp_path, "abcd", test)


def test_the_record_and_not_the_host_says_where_a_component_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(answer: ComponentStates) -> ComponentStates:
        """All is at ``d``, where the rows go: they would cost nothing."""
        operators = tuple(msgspec.structs.replace(one, node="d") for one in answer.operators)
        links = tuple(msgspec.structs.replace(one, source_node="d") for one in answer.links)
        return msgspec.structs.replace(answer, operators=operators, links=links)

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        info = await state_of(cluster, "a")
        assert sorted(one.node for one in info.operators) == ["b", "c"]
        ways = {(link.source_node, link.target_node): link.latency_ms for link in info.links}
        assert {way for way in ways if "d" in way} == {("b", "d"), ("c", "d")}
        assert ways["b", "d"]

    says(monkeypatch, "b", Descriptions, "_described", elsewhere)
    in_cluster(tmp_path, "abcd", test)


def test_an_answer_that_cannot_be_read_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that its node hosts is not reported as missing there."""

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        info = await state_of(cluster, "a")
        states = {one.node: (one.state, one.reason) for one in info.operators}
        assert states == {"b": ("unreachable", "no answer from b"), "c": ("running", "")}
        assert info.reason == "no answer from b"
        assert cluster.at("a").daemon.context.counters.snapshot()["description-refused"]

    says(monkeypatch, "b", Descriptions, "_described", lambda answer: msgspec.structs.replace(answer, links=({"stream": 7},)))
    in_cluster(tmp_path, "abcd", test)


@pytest.mark.one_part_per_commit("queries in virtual time", parts=6)
def test_a_round_of_measurements_outlives_a_record_that_goes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        leader = cluster.at("a").daemon.queries.leader
        described = deploy.describe

        async def goes(context: Context, record: QueryRecord, hosts: Mapping[str, str], **asked: Any) -> Description:
            leader._records._known.pop(record.id, None)
            return await described(context, record, hosts, **asked)

        with monkeypatch.context() as patch:
            patch.setattr(deploy, "describe", goes)
            await cluster.sleep(10.0)
        assert leader._records.get("q") is None
        await submitted(cluster, "a", tmp_path / "again.csv", name="again", consumer="d", strategy="producer")
        counted = []
        for _ in range(2):
            await cluster.sleep(10.0)
            listed = await ask(cluster, "e", cluster.at("e").daemon.queries.lookup.all())
            (info,) = [one for one in listed if one.id == "again"]
            counted.append((info.id, info.rows))
        assert counted[0] < counted[1]

    in_cluster(tmp_path, "abcde", test, measure_interval_s=5.0)


def test_an_unknown_query_is_said_to_be_perhaps_at_who_does_not_answer(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        cluster.network.cut("a", "c", both=True)
        with pytest.raises(SbonError) as caught:
            await state_of(cluster, "a", "nowhere")
        assert caught.value.code == "unknown-query"
        assert "no answer from c (alive): it may be there" in caught.value.message
        assert "start c again" in caught.value.hint
        assert caught.value.details == ("c (alive)",)

    in_cluster(tmp_path, "abc", test)


@pytest.mark.one_part_per_commit("absences of acceptors", parts=2)
@pytest.mark.parametrize("state", ["away", "dead"])
def test_hosts_describe_a_query_whose_acceptor_is_absent(tmp_path: Path, state: str) -> None:
    """``a`` alone keeps the record, as in a cluster of two; ``b`` has all components."""

    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b", rows=1_000_000, rate=3.0))
        await submitted(cluster, "a", tmp_path / "out.csv", consumer="b", strategy="producer")
        if state == "away":
            await cluster.stop("a")
        else:
            cluster.crash(cluster.at("a"))
        while cluster.at("b").daemon.membership.get("a").state != state:  # type: ignore[union-attr]
            await cluster.clock.sleep(0.5)
        daemon = cluster.at("b").daemon
        found = await ask(cluster, "b", daemon.queries.lookup.all())
        assert [(info.id, info.state, info.node, info.consumer) for info in found] == [("q", "unreachable", "a", "b")]
        assert found[0].reason.startswith(f"no answer from a ({state}), which keep its record; there are ")
        assert {(part.node, part.state) for part in found[0].operators} == {("b", "unreachable")}
        assert found.unanswered == (("a", state),)
        for question in (
            daemon.queries.lookup.query,
            daemon.queries.lookup.stop,
            daemon.queries.lookup.usage,
            daemon.queries.explainer.query,
        ):
            with pytest.raises(SbonError) as caught:
                await ask(cluster, "b", question("q"))
            assert caught.value.code == "holder-unreachable"
            assert f"no answer from a ({state})" in caught.value.message
            assert "start a again" in caught.value.hint
        cluster.boot(cluster.at("a"))
        await cluster.together()
        found = await ask(cluster, "b", daemon.queries.lookup.all())
        assert [(info.id, info.state, info.node) for info in found] == [("q", "running", "a")]
        assert found.unanswered == ()

    in_cluster(tmp_path, "ab", test)


def test_a_list_that_no_node_answers_is_no_empty_list(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        async def late(call: ListQueries, caller: Caller) -> Any:
            await cluster.clock.sleep(60.0)

        for name in "ab":
            cluster.at(name).daemon.context.server.handle(ListQueries, late)
        with pytest.raises(SbonError) as refused:
            await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.all())
        assert refused.value.code == "nodes-unreachable"
        assert refused.value.message == "no node answers, not even the one asked: a (alive), b (alive)"
        assert refused.value.hint == "lessen the load of their machines, or raise control.call_timeout_s"

    in_cluster(tmp_path, "ab", test)


def test_a_list_names_a_live_node_that_does_not_answer_in_time(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        async def late(call: ListQueries, caller: Caller) -> Any:
            await cluster.clock.sleep(60.0)

        cluster.at("b").daemon.context.server.handle(ListQueries, late)
        found = await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.all())
        assert (list(found), found.unanswered) == ([], (("b", "alive"),))

    in_cluster(tmp_path, "ab", test)


def test_a_departed_node_holds_no_queries(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await ask(cluster, "c", cluster.at("c").daemon.adaptation.leaving.leave_and_stop())
        while cluster.at("a").daemon.membership.get("c").state != "left":  # type: ignore[union-attr]
            await cluster.clock.sleep(0.5)
        found = await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.all())
        assert (list(found), found.unanswered) == ([], ())
        with pytest.raises(SbonError) as caught:
            await state_of(cluster, "a", "nowhere")
        assert (caught.value.code, caught.value.message) == ("unknown-query", "there is no query 'nowhere'")

    in_cluster(tmp_path, "abc", test)


def test_an_unknown_query_is_refused_with_names_of_any_node_that_are_spelt_alike(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("a", rows=10))
        await submitted(cluster, "a", None, name="large_trades")
        for at in "abcd":
            for typed, hint in (("LARGE_TRAEDS", "did you mean large_trades?"), ("nowhere", "see: sbon query list")):
                with pytest.raises(SbonError, match=f"there is no query '{typed}'") as caught:
                    await state_of(cluster, at, typed)
                assert caught.value.hint == hint

    in_cluster(tmp_path, "abcd", test)


def from_file(path: Path) -> SourceDeclaration:
    return SourceDeclaration(stream="numbers", name="b", node="b", connector="file", options={"path": str(path)})


def test_a_source_that_cannot_be_read_is_the_querys_reason_until_it_can(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    rows = "id,v,ts\n1,0.5,2026-01-01T00:00:00Z\n2,x,2026-01-01T00:00:01Z\n3,1.5,2026-01-01T00:00:02Z\n"

    async def test(cluster: SimulatedCluster) -> None:
        path.write_text(rows)
        await declare(cluster, "a", from_file(path))
        path.unlink()
        await submitted(cluster, "a", tmp_path / "out.csv", consumer="c")
        await cluster.clock.sleep(120)
        info = await state_of(cluster, "a")
        assert (info.state, info.reason) == ("running", f"source numbers at b: there is no file {path}")
        assert [(one.source.name, one.trouble) for one in info.sources] == [("b", f"there is no file {path}")]
        found: Explanation = await ask(cluster, "c", cluster.at("c").daemon.queries.explainer.query("q"))
        assert found.reason == info.reason
        path.write_text(rows)
        await cluster.clock.sleep(60)
        info = await state_of(cluster, "a")
        assert (info.state, info.reason, info.rows) == ("finished", "", 2)
        assert [(one.rows, one.bad, one.trouble) for one in info.sources] == [(2, 1, "")]

    in_cluster(tmp_path, "abc", test)


def test_a_paused_sink_is_the_querys_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = "paused: out.csv: no space for more: 0.1 MB free"

    async def test(cluster: SimulatedCluster) -> None:
        await running(cluster, tmp_path)
        assert (await state_of(cluster, "a")).reason == ""
        monkeypatch.setattr(OpenSinks, "report", lambda sinks, sink: SinkReport(state=state))
        assert (await state_of(cluster, "a")).reason == f"sink at d is {state}"

    in_cluster(tmp_path, "abcd", test)


def test_a_source_that_has_failed_is_the_querys_reason(tmp_path: Path) -> None:
    path = tmp_path / "numbers.ndjson"

    def rows(v: float) -> str:
        return "".join(f'{{"id":{i},"v":{v},"ts":"2026-01-01T00:00:{i:02}Z"}}\n' for i in range(60))

    async def test(cluster: SimulatedCluster) -> None:
        path.write_text(rows(0.5))
        source = from_file(path)
        await declare(cluster, "a", msgspec.structs.replace(source, options={**source.options, "replay": 1}))
        await submitted(cluster, "a", tmp_path / "out.csv", consumer="c", strategy="consumer")
        await cluster.clock.sleep(40)
        cluster.crash(cluster.at("b"))
        path.write_text(rows(1.5))
        cluster.boot(cluster.at("b"))
        await cluster.clock.sleep(20)
        info = await state_of(cluster, "a")
        assert info.state == "running"
        assert info.reason == f"source numbers at b has failed: {path}: the file is not the one that was read before"

    small = msgspec.structs.replace(CONFIG.connectors, block_bytes=1024)
    in_cluster(tmp_path, "abc", test, configs={"b": msgspec.structs.replace(UNHURRIED, connectors=small)})
