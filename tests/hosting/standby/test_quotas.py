"""A host that sends batches which never end, or files that no batch lists, fills no disk of the node that keeps its backup."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_node.engine.manifest import CopiedFile
from sbon_node.hosting.standby.keeper import files_of
from sbon_node.hosting.standby.settings import BackupSettings
from sbon_node.model.frames import Frame
from sbon_node.streams.outbox.copies import StreamState
from sbon_protocol.base import Call
from sbon_protocol.calls import BackupStored, StoreBackup, StoreSource
from sbon_protocol.errors import SbonError
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_first_batches import keeper_at
from tests.hosting.standby.test_recovery import register_of
from tests.hosting.standby.test_replicated_sources import SOURCE, backed_up, declared, posted_at, push
from tests.nodes.clusters import declare, submitted
from tests.nodes.test_moved_operators import FILTER, operators
from tests.nodes.test_pushes import http_at
from tests.nodes.test_pushes import push as push_rows

LIMIT = 2**20
SMALL = msgspec.structs.replace(CONFIG, backups=BackupSettings(stream_bytes=LIMIT))
PAYLOAD = b"x" * 100_000


async def quiet(cluster: SimulatedCluster, folder: Path) -> tuple[str, str, str]:
    """Start a query that has shown some rows, and shows no more; return its operator, the host, and the backup."""
    await declare(cluster, "a", http_at("b"))
    await submitted(cluster, "a", folder / "out.csv", sql=FILTER, strategy="producer", durability="replicated")
    await push_rows(cluster, "b")
    await cluster.sleep(10.0)
    (operator,) = operators(cluster)
    register = await register_of(cluster, operator)
    return operator, register.host, register.backup


async def refusal(cluster: SimulatedCluster, host: str, keeper: str, call: Call) -> str:
    """Return the code with which a call of the host is refused; empty for none."""
    try:
        await cluster.answer(host, cluster.at(host).daemon.context.call(keeper, call))
    except SbonError as error:
        return error.code
    return ""


def listed(path: str, content: bytes) -> CopiedFile:
    return CopiedFile(path=path, bytes=len(content), digest=hashlib.sha256(content).hexdigest())


def refused(cluster: SimulatedCluster, keeper: str) -> int:
    return cluster.at(keeper).daemon.context.counters.snapshot().get("backup-too-large", 0)


def piece(stream: str, number: int) -> tuple[Frame, ...]:
    return (Frame(stream=stream, number=number, payload=PAYLOAD, rows=1),)


def test_an_operators_batch_that_never_ends_is_refused(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator, host, backup = await quiet(cluster, tmp_path)
        kept = keeper_at(cluster, backup)._known[operator]
        assert kept.stored.newest is not None
        state: StreamState = kept.stored.newest.stream
        last, codes = state.tail.last, list[str]()
        for number in range(last + 1, last + 20):
            frames = piece(operator, number)
            call = StoreBackup(operator, kept.stored.sealed, 10**6, None, state, number - 1, frames, more=True)
            codes.append(await refusal(cluster, host, backup, call))
            if codes[-1]:
                break
        assert codes[-1] == "backup-too-large"
        assert LIMIT // 2 < len(codes) * len(PAYLOAD) <= LIMIT + len(PAYLOAD)
        assert cluster.at(backup).daemon.outbox.backups.last(operator, state.lineage) == last
        assert refused(cluster, backup) == 1
        await push_rows(cluster, "b")
        await cluster.sleep(5.0)
        assert kept.stored.newest.stream.tail.last > last

    in_calm_cluster(tmp_path, "abcd", test, config=SMALL)


def test_files_of_batches_that_are_refused_do_not_stay(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator, host, backup = await quiet(cluster, tmp_path)
        kept = keeper_at(cluster, backup)._known[operator]
        newest = kept.stored.newest
        assert newest is not None
        folder = files_of(cluster.at(backup).daemon.context, operator)
        stored = {file.digest for file in newest.files}
        for number in range(5):
            content = bytes([number]) * 1000
            sent, lacking = listed("sent", content), listed("lacking", content + b"never sent")
            call = StoreBackup(
                operator,
                kept.stored.sealed,
                newest.batch + 1,
                newest.cut,
                newest.stream,
                newest.stream.tail.last,
                files=(sent, lacking),
                contents=(content,),
            )
            with pytest.raises(SbonError, match="have not come"):
                await cluster.answer(host, cluster.at(host).daemon.context.ask(backup, call, BackupStored))
            assert len({path.name for path in folder.iterdir()} - stored) <= 1
        assert kept.stored.newest is not None

    in_calm_cluster(tmp_path, "abcd", test, config=SMALL)


def test_a_sources_transaction_that_never_ends_is_refused(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, posted_at("b"))
        await backed_up(cluster)
        await push(cluster, 0)
        info = (await backed_up(cluster)).backup
        assert info is not None
        keeper = cluster.at(info.node).daemon.hosting.source_backups.keeper
        state = keeper._known[SOURCE].stored.stream
        assert state is not None
        code, number = "", state.tail.last
        while not code:
            number += 1
            call = StoreSource(SOURCE, 1, state, number - 1, b"", frames=piece(SOURCE, number), more=True)
            code = await refusal(cluster, "b", info.node, call)
        assert code == "backup-too-large"
        assert LIMIT // 2 < (number - state.tail.last) * len(PAYLOAD) <= LIMIT + len(PAYLOAD)
        assert cluster.at(info.node).daemon.outbox.backups.last(SOURCE, state.lineage) == state.tail.last
        assert refused(cluster, info.node) == 1
        assert (await push(cluster, 1)).rows == 3

    in_calm_cluster(tmp_path, "abcd", test, config=SMALL)


def test_a_source_whose_frames_a_backup_has_no_room_for_finds_another(tmp_path: Path) -> None:
    tiny = msgspec.structs.replace(CONFIG, backups=BackupSettings(stream_bytes=600))

    async def test(cluster: SimulatedCluster) -> None:
        await declared(cluster, posted_at("b"))
        async with cluster.clock.timeout(60.0):
            for number in range(20):
                assert (await push(cluster, number)).rows == 3
        backup = (await backed_up(cluster)).backup
        assert backup is not None
        assert backup.node == "e"

    in_calm_cluster(tmp_path, "abcde", test, configs=dict.fromkeys("abcd", tiny))
