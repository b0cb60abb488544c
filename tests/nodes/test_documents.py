"""Documents beside registers: sent once, had by every acceptor, fetched by others, checked, bounded, and deleted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.query_run import record_of
from sbon_node.model.records import QueryRecord
from sbon_node.ownership.consensus.acceptor import Accept
from sbon_node.ownership.consensus.changes import Verdict
from sbon_node.ownership.consensus.states import Ballot, Configuration, State
from sbon_node.ownership.queries import joined, references, split
from sbon_node.ownership.store.acceptor_store import MAX_DOCUMENT_BYTES, Document, digest_of
from sbon_node.ownership.store.registers import Attached
from sbon_protocol.calls import AskRegister, FetchDocuments, FetchedDocuments, RegisterAnswer
from sbon_protocol.errors import SbonError
from tests.nodes.clusters import SQL, ask, declare, in_cluster, source_at, state_of, submitted, uid_of
from tests.nodes.test_lost import lose_data
from tests.nodes.test_registers import KEY, acceptors, registers

LONG = f"{SQL} -- {'long ' * 3900}"


def documents_at(cluster: SimulatedCluster, at: str) -> list[str]:
    """Return the digests on disk, which are those that the node knows."""
    node = cluster.at(at).daemon
    stored = sorted(node.context.store.all("document", Document))
    assert stored == sorted(node.ownership.acceptors.documents.digests())
    return stored


def attached(*contents: bytes) -> Attached:
    documents = {digest_of(content): content for content in contents}
    return Attached(tuple(documents), documents)


def sent_bytes(cluster: SimulatedCluster) -> int:
    return sum(cluster.network.traffic(name).stream_bytes_sent for name in cluster.nodes)


async def runs(cluster: SimulatedCluster) -> QueryRecord:
    """A query with a long text, whose acceptors are ``a`` and two others of ``abcde``; ``a`` alone hosts its components."""
    await declare(cluster, "a", source_at("a", rows=100_000, rate=0.5))
    await submitted(cluster, "a", None, sql=LONG, strategy="producer")
    record = record_of(cluster, "q")
    assert record is not None
    return record


def kept(cluster: SimulatedCluster) -> list[str]:
    return [one.node for one in cluster.at("a").daemon.queries.leader.acceptors(uid_of(cluster))]


def test_a_change_sends_the_register_and_not_the_text(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        record = await runs(cluster)
        await cluster.sleep(5)
        assert len(references(record)) == 2
        for name in "abcde":
            assert documents_at(cluster, name) == (sorted(references(record)) if name in kept(cluster) else [])
        node, before = cluster.at("a").daemon, sent_bytes(cluster)
        changed = await ask(
            cluster, "a", node.ownership.records.change(record.id, lambda now: msgspec.structs.replace(now, reason="a test"))
        )
        await cluster.sleep(0.5)
        assert (changed.after.reason, changed.after.sql, changed.after.plan) == ("a test", LONG, record.plan)
        assert sent_bytes(cluster) - before < len(LONG) / 4
        state = node.ownership.acceptors.state(f"query/{record.id}")
        assert state is not None
        assert len(state.value) < 1000 < len(LONG)

    in_cluster(tmp_path, "abcde", test)


def test_an_acceptor_that_missed_a_document_gets_it_from_another(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        first, second = attached(b"text" * 1000), attached(b"text" * 1000, b"placement" * 1000)
        await ask(cluster, "a", registers(cluster, "a").create(KEY, b"one", acceptors(cluster, "abc"), first))
        cluster.crash(cluster.at("c"))
        new = Attached(second.references, dict([list(second.documents.items())[1]]))
        change = registers(cluster, "a").compare_and_set(KEY, 1, b"two", attached=new)
        assert (await ask(cluster, "a", change)).verdict == Verdict.APPLIED
        cluster.boot(cluster.at("c"))
        await cluster.together()
        assert documents_at(cluster, "c") == sorted(first.references)
        # A node that has none of them brings the acceptor up to date.
        await ask(cluster, "d", registers(cluster, "d").settle(KEY))
        await cluster.sleep(1)
        assert documents_at(cluster, "c") == sorted(second.references)
        assert documents_at(cluster, "d") == []

    in_cluster(tmp_path, "abcd", test)


def test_a_new_acceptor_has_the_documents_before_it_counts(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        record = await runs(cluster)
        lost = kept(cluster)[2]
        await lose_data(cluster, lost)
        await cluster.sleep(60)
        now = kept(cluster)
        assert len(now) == 3
        for name in now:
            assert documents_at(cluster, name) == sorted(references(record))
        for name in now[:2]:  # Those that had it first are gone: the new one and a node that comes back know the text.
            cluster.crash(cluster.at(name))
        cluster.boot(cluster.at(now[1]))
        await cluster.until(lambda: cluster.at(now[1]).ready)
        await cluster.sleep(15)
        other = next(name for name in "abcde" if name not in now)
        info = await state_of(cluster, other)
        assert (info.sql, info.stale) == (LONG, False)

    in_cluster(tmp_path, "abcde", test)


def test_a_node_that_keeps_no_record_checks_the_documents_it_fetches(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        record = await runs(cluster)
        first, second, _ = kept(cluster)
        reader = next(name for name in "abcde" if name not in kept(cluster))

        async def forged(call: FetchDocuments, caller: object) -> FetchedDocuments:
            return FetchedDocuments(documents=(b"DROP TABLE",))

        cluster.at(first).daemon.context.server.handle(FetchDocuments, forged)
        node = cluster.at(reader).daemon
        read = await ask(cluster, reader, node.ownership.records.read(record.id))
        assert (read.sql, read.plan, read.placement) == (LONG, record.plan, record.placement)
        assert node.context.counters.snapshot()["document-refused"] == 1
        cluster.at(second).daemon.context.server.handle(FetchDocuments, forged)
        node.ownership.registers.documents._remembered.clear()
        cluster.crash(cluster.at(kept(cluster)[2]))
        with pytest.raises(SbonError, match="no acceptor that answers has the document") as refused:
            await ask(cluster, reader, node.ownership.records.read(record.id))
        assert refused.value.code == "document-unknown"

    in_cluster(tmp_path, "abcde", test)


def test_an_acceptor_refuses_a_document_that_its_digest_does_not_name(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        one, two = acceptors(cluster, "ab")
        state = State(1, b"one", (), Configuration(0, (one, two)), (digest_of(b"text"),))
        ballot = Ballot(1, "a", one.instance)
        accept = Accept(two, ballot, state, msgspec.structs.replace(ballot, counter=2))

        async def send(*documents: bytes) -> object:
            call = AskRegister(key=KEY, request=accept, documents=documents)
            answer = await ask(cluster, "a", cluster.at("a").daemon.context.ask("b", call, RegisterAnswer))
            return answer.answer

        with pytest.raises(SbonError, match=f"a sent a document of SHA-256 {digest_of(b'test')}") as refused:
            await send(b"text", b"test")
        assert (refused.value.code, refused.value.where) == ("bad-digest", "documents[1]")
        with pytest.raises(SbonError, match="bytes from a") as large:
            await send(b"x" * (MAX_DOCUMENT_BYTES + 1))
        assert large.value.code == "too-large"
        missing = await send()
        assert missing["type"] == "missing-documents"  # type: ignore[index]
        assert cluster.at("b").daemon.ownership.acceptors.state(KEY) is None
        assert documents_at(cluster, "b") == []
        assert (await send(b"text"))["type"] == "acceptance"  # type: ignore[index]
        assert documents_at(cluster, "b") == [digest_of(b"text")]

    in_cluster(tmp_path, "ab", test)


def test_documents_go_with_the_last_register_that_refers_to_them(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        async def forget(key: str) -> None:
            registers(cluster, "b").forget(key)

        async def leave_over() -> None:
            cluster.at("c").daemon.context.store.put("document", digest_of(b"left"), Document(b"left"))

        both, one = attached(b"shared", b"own"), attached(b"shared")
        client = registers(cluster, "a")
        for key, documents in (("other/1", both), ("other/2", one)):
            await ask(cluster, "a", client.create(key, b"x", acceptors(cluster, "abc"), documents))
        await cluster.sleep(1)
        assert documents_at(cluster, "c") == sorted(both.references)
        await ask(cluster, "a", client.compare_and_set("other/1", 1, b"y", attached=one))
        await cluster.sleep(1)
        for name in "abc":
            assert documents_at(cluster, name) == list(one.references)
        await ask(cluster, "b", forget("other/1"))
        assert documents_at(cluster, "b") == list(one.references)
        await ask(cluster, "b", forget("other/2"))
        assert documents_at(cluster, "b") == []
        # One that a death left without its register goes at the next start.
        await ask(cluster, "c", leave_over())
        cluster.crash(cluster.at("c"))
        cluster.boot(cluster.at("c"))
        await cluster.until(lambda: cluster.at("c").ready)
        assert documents_at(cluster, "c") == list(one.references)

    in_cluster(tmp_path, "abc", test)


def test_a_refused_submission_leaves_no_documents(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declare(cluster, "a", source_at("b"))
        cluster.at("a").daemon.queries.planning.place = None  # type: ignore[assignment,method-assign]
        with pytest.raises(TypeError):
            await submitted(cluster, "a", None, consumer="c")
        await cluster.sleep(30)
        assert [documents_at(cluster, name) for name in "abc"] == [[], [], []]

    in_cluster(tmp_path, "abc", test)


def test_documents_are_bounded(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        client, three = registers(cluster, "a"), acceptors(cluster, "abc")
        await ask(cluster, "a", client.create(KEY, b"x", three, attached(b"x" * 600_000)))
        with pytest.raises(SbonError, match="keeps 1 MB of texts") as refused:
            await ask(cluster, "a", client.create("other/2", b"x", three, attached(b"y" * 600_000)))
        assert refused.value.code == "documents-full"
        with pytest.raises(SbonError, match="bytes in a register"):
            await ask(cluster, "a", client.create("other/3", b"x", three, attached(b"z" * (MAX_DOCUMENT_BYTES + 1))))
        assert documents_at(cluster, "b") == [digest_of(b"x" * 600_000)]

    in_cluster(tmp_path, "abc", test, documents_mb=1)


def test_a_record_is_what_its_register_and_documents_are(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await runs(cluster)
        await ask(cluster, "a", cluster.at("a").daemon.queries.lookup.stop("q"))
        record = cluster.at("a").daemon.queries.leader.find("q")
        assert record is not None
        assert record.last is not None
        assert (record.last.sql, record.last.placement) == (LONG, record.placement)
        parts = split(record)
        state = State(record.version, parts.content, (), Configuration(0, ()), parts.attached.references)
        assert joined(state, parts.attached.documents.__getitem__) == record == parts.value
        assert split(record, record).attached.documents == {}
        # A record of before there were documents is whole in its register, and is split by its next change.
        whole = msgspec.structs.replace(record, definition_digest="", placement_digest="", end_digest="")
        state = msgspec.structs.replace(state, value=msgspec.msgpack.encode(whole), references=())
        assert joined(state, {}.__getitem__) == whole
        assert split(whole, whole) == parts

    in_cluster(tmp_path, "abcde", test)
