"""Everything below a node's folder is its user's alone: daemon, engine and JVM, under an open umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sbon.model import Column, SinkSpec, SourceDeclaration, StreamDeclaration
from tests.live.world import World, finished, submit, wait_for

pytestmark = pytest.mark.live

EVENTS = StreamDeclaration(name="events", schema=(Column("ts", "timestamp"), Column("n", "bigint")), event_time="ts")


def rights_of_others(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield all files and folders below, but links and those that are deleted meanwhile."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            with suppress(FileNotFoundError):
                mode = path.lstat().st_mode
                if not stat.S_ISLNK(mode):
                    yield path, mode & 0o077


def test_nothing_is_open_to_others(world: World) -> None:
    node = world.cluster["cyd"]
    rows = node.data_dir / "files" / "rows.csv"
    rows.write_text("ts,n\n" + "".join(f"2026-01-01T00:00:{i:02},{i}\n" for i in range(60)))
    rows.chmod(0o600)
    node.client.create_stream(EVENTS)
    read = {"path": str(rows), "replay": 20.0}  # for three seconds, in which the checkpoint is seen
    source = SourceDeclaration(stream="events", name="one", node=node.name, connector="file", options=read)
    node.client.attach_source(source)
    sql = "SELECT window(ts, '10 seconds').start AS at, sum(n) AS n FROM events GROUP BY window(ts, '10 seconds')"
    query = submit(node, sql=sql, strategy="producer", sink=SinkSpec(kind="blackhole"))
    assert {operator.node for operator in query.operators} == {node.name}
    rights = {folder: folder.stat().st_mode & 0o077 for folder in (world.cluster.folder, node.folder)}

    def ended() -> bool:
        """Look again and again: the checkpoint is gone once the query has finished."""
        over = finished(node, query.id)
        rights.update(rights_of_others(node.folder))
        return over

    wait_for(ended, "the query is finished")
    assert [str(path) for path, others in rights.items() if others] == []
    assert any("offsets" in path.parts for path in rights)
