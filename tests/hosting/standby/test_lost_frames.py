"""A backup without ``streams.fsync`` loses its power, and with it frames of a stored batch, but not the batch's synced record."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.hosting.standby import keeper, source
from tests.calm_clusters import in_calm_cluster
from tests.hosting.standby.test_recovery import ROWS as ROWS_OF_QUERY
from tests.hosting.standby.test_recovery import register_of as register_of_operator
from tests.hosting.standby.test_recovery import replicated
from tests.hosting.standby.test_replicated_sources import (
    ROWS,
    SOURCE,
    SQL,
    backed_up,
    check_each_once,
    declared,
    lose,
    posted_at,
    push,
    register_of,
    until_rows,
)
from tests.nodes.clusters import submitted
from tests.nodes.test_moved_operators import FILTER, check_filtered, finished


def lose_last_frame(cluster: SimulatedCluster, node: str, backed: str) -> None:
    """Crash a node after its backup's last frame is gone: it was not written back before the power failed."""
    streams = cluster.at(node).daemon.outbox.backups
    kept = streams._kept[backed]
    assert kept.visible.last > kept.trimmed
    streams._cut(kept, kept.visible.last - 1)
    cluster.crash(cluster.at(node))


async def with_posts(cluster: SimulatedCluster, posts: int) -> str:
    """Post rows to a replicated source at ``b``, which nobody reads yet; return its backup."""
    await declared(cluster, posted_at("b"))
    backup = (await backed_up(cluster)).backup
    assert backup is not None
    for number in range(posts):
        await push(cluster, number)
    return backup.node


async def check_all_rows(cluster: SimulatedCluster, path: Path, posts: int) -> None:
    await submitted(cluster, "a", path, sql=SQL, strategy="consumer", consumer="a")
    await until_rows(cluster, posts * ROWS)
    check_each_once(path, posts * ROWS)


def test_the_host_of_a_source_sends_lost_frames_again(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        backup = await with_posts(cluster, 4)
        lose_last_frame(cluster, backup, SOURCE)
        cluster.boot(cluster.at(backup))
        await push(cluster, 4)
        assert (await register_of(cluster)).backup == backup
        lose(cluster, "b")
        await push(cluster, 5)
        assert (await register_of(cluster)).host == backup
        await check_all_rows(cluster, tmp_path / "out.csv", 6)

    in_calm_cluster(tmp_path, "abcde", test)


def test_the_host_of_an_operator_sends_lost_frames_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        operator = await replicated(cluster, tmp_path / "out.csv", FILTER)
        register = await register_of_operator(cluster, operator)
        host = cluster.at(register.host).daemon
        with monkeypatch.context() as patch:
            patch.setattr(host.outbox, "acknowledge", lambda *_: None)  # Else the host soon has no such frame either.
            stored = host.outbox.visible_batch(operator)
            await cluster.until(lambda: host.outbox.visible_batch(operator) > stored + 2)
            lose_last_frame(cluster, register.backup, operator)
            cluster.boot(cluster.at(register.backup))
            stored = host.outbox.visible_batch(operator)
            await cluster.until(lambda: host.outbox.visible_batch(operator) > stored + 2)
        await finished(cluster)
        assert (await register_of_operator(cluster, operator)).backup == register.backup
        check_filtered(tmp_path / "out.csv", ROWS_OF_QUERY)

    in_calm_cluster(tmp_path, "abcde", test)


def test_a_backup_without_its_last_frames_waits_for_the_host(tmp_path: Path) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        backup = await with_posts(cluster, 4)
        cluster.crash(cluster.at("b"))
        lose_last_frame(cluster, backup, SOURCE)
        cluster.boot(cluster.at(backup))
        await cluster.sleep(60.0)
        assert (await register_of(cluster)).host == "b"
        cluster.boot(cluster.at("b"))
        await push(cluster, 4)
        await check_all_rows(cluster, tmp_path / "out.csv", 5)

    in_calm_cluster(tmp_path, "abcde", test)


def test_a_backup_goes_on_from_no_record_whose_frames_came_in_part_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host dies once as many frames have come again as the record has: they may be of another transaction."""
    monkeypatch.setattr(source, "PIECE_FRAMES", 1)

    async def test(cluster: SimulatedCluster) -> None:
        backup = await with_posts(cluster, 4)
        lose_last_frame(cluster, backup, SOURCE)
        keep_frames = keeper.keep_frames

        def keep(context: object, sent: keeper.SentFrames, *args: object) -> None:
            keep_frames(context, sent, *args)  # type: ignore[arg-type]
            if sent.after == 3:
                cluster.crash(cluster.at("b"))

        monkeypatch.setattr(keeper, "keep_frames", keep)
        cluster.boot(cluster.at(backup))
        await cluster.until(lambda: cluster.at(backup).ready)
        with pytest.raises(AssertionError, match="is not answered"):
            await push(cluster, 4)
        assert cluster.at(backup).daemon.outbox.backups.last(SOURCE, lineage_at(cluster, backup)) == 4
        assert (await register_of(cluster)).host == "b"
        monkeypatch.setattr(keeper, "keep_frames", keep_frames)
        cluster.boot(cluster.at("b"))
        await push(cluster, 4)
        await check_all_rows(cluster, tmp_path / "out.csv", 5)

    in_calm_cluster(tmp_path, "abcde", test)


def lineage_at(cluster: SimulatedCluster, node: str) -> int:
    stream = cluster.at(node).daemon.hosting.source_backups.keeper.stored(SOURCE).stream
    assert stream is not None
    return stream.lineage
