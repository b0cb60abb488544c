"""``sbon stream push`` to real nodes: each row once, whatever is killed, and refusals with their lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.local.node import LocalNode
from sbon_cli.commands.streams.push import Records
from sbon_node.connectors.formats import frames
from sbon_node.streams.outbox.outbox import Outbox
from sbon_node.streams.settings import StreamSettings
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from tests.live.world import wait_for

pytestmark = pytest.mark.live
SCHEMA = (Column("ts", "timestamp"), Column("n", "bigint"), Column("text", "string"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(["ada", "bob"], overrides=SHORT_LIVED) as cluster:
        yield cluster


def declared(cluster: LocalCluster, name: str) -> LocalNode:
    """The node that takes rows for the stream."""
    client = cluster["ada"].client
    client.create_stream(StreamDeclaration(name=name, schema=SCHEMA, event_time="ts"))
    client.attach_source(SourceDeclaration(stream=name, name="posts", node="bob", connector="http"))
    wait_for(lambda: client.stream(name).sources[0].state == "running", "the source runs")
    return cluster["bob"]


def push(node: LocalNode, *arguments: str, stdin: int | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sbon_cli.main", "--node", node.client.api, "stream", "push", *arguments]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def stored(node: LocalNode, stream: str) -> list[int]:
    """Return the rows of the stream, read from the disk of a stopped node."""
    node.kill(signal.SIGKILL)
    outbox = Outbox(node.data_dir / "outbox.db", StreamSettings())
    name = next(one for one in outbox.streams() if one.startswith(f"source/{stream}@"))
    found = [n for frame in outbox.read(name, 0, 2**40) for n in frames.decode(frame.payload)["n"].to_pylist()]
    outbox.close()
    node.restart()
    return found


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_file_is_pushed_whole_with_the_lines_of_what_is_bad(cluster: LocalCluster, tmp_path: Path) -> None:
    node = declared(cluster, "files")
    path = tmp_path / "rows.csv"
    rows = [f'2020-01-01T00:00:00Z,{i},"text\n{i} {"x" * 40}"' for i in range(30_000)]
    rows[25_000] = "2020-01-01,what,"
    path.write_text("ts,n,text\n" + "\n".join(rows))
    pushing = push(cluster["ada"], "files", str(path), "--json")
    out, err = pushing.communicate()
    assert (pushing.returncode, err.decode()) == (1, "line 50002: n is no bigint: 'what'\n")
    answer = json.loads(out)
    assert (answer["rows"], answer["bad"]) == (29_999, 1)
    assert stored(node, "files") == [i for i in range(30_000) if i != 25_000]


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_pipe_is_pushed_once_while_the_node_is_killed(cluster: LocalCluster) -> None:
    node = declared(cluster, "pipes")
    pushing = push(node, "pipes", "-", "--json", stdin=subprocess.PIPE)
    assert pushing.stdin is not None
    count = 0

    def write(rows: int) -> None:
        nonlocal count
        for _ in range(rows):
            pushing.stdin.write(b'{"ts": "2020-01-01T00:00:00Z", "n": %d}\n' % count)  # type: ignore[union-attr]
            count += 1
        pushing.stdin.flush()  # type: ignore[union-attr]

    write(1000)
    wait_for(lambda: node.client.stream("pipes").sources[0].rows > 0, "rows arrive before the pipe ends")
    for _ in range(2):
        node.kill(signal.SIGKILL)
        write(300)
        node.start()
        write(300)
        node.wait_ready()
        # A pipe has a small buffer: the test writes more once these rows have been read.
        wait_for(lambda: node.client.stream("pipes").sources[0].rows == count, "all of it arrives")
    out, err = pushing.communicate()
    assert pushing.returncode == 0, err
    assert json.loads(out)["rows"] == count
    assert stored(node, "pipes") == list(range(count))


@pytest.mark.one_part_per_commit("kinds of junk", parts=3)
@pytest.mark.parametrize("junk", [b"not json\n", b"not json", b"not json\nat all\n"])
def test_junk_is_refused_however_little_it_is(cluster: LocalCluster, junk: bytes) -> None:
    name = f"junk{len(junk)}"
    pushing = push(declared(cluster, name), name, "-", stdin=subprocess.PIPE)
    _, err = pushing.communicate(junk)
    assert (pushing.returncode, err.decode().splitlines()[0]) == (1, "error: body: there is no column ts, n, text")


def test_columns_outside_the_schema_are_reported(cluster: LocalCluster) -> None:
    pushing = push(declared(cluster, "others"), "others", "-", "--json", stdin=subprocess.PIPE)
    out, err = pushing.communicate(b'{"ts": "2020-01-01", "n": 1, "nopage": 1}\n')
    assert (pushing.returncode, json.loads(out)["rows"]) == (0, 1)
    assert err.decode() == "not in the schema of others, and not stored: nopage\n"


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
async def test_requests_by_hand(cluster: LocalCluster) -> None:
    node = declared(cluster, "hands")
    async with aiohttp.ClientSession() as session:

        async def post(to: LocalNode, body: bytes, **headers: str) -> tuple[int, dict[str, object], str]:
            named = {"Content-Type": "application/x-ndjson"} | {k.replace("_", "-"): v for k, v in headers.items()}
            url = f"{to.client.api}/v1/streams/hands/rows"
            async with session.post(url, data=body, headers=named) as answer:
                return answer.status, await answer.json(content_type=None), answer.headers.get("Retry-After", "")

        row = b'{"ts": "2020-01-01", "n": 1}\n'
        status, answer, _ = await post(node, row, Idempotency_Key='"k"')
        assert (status, answer["rows"], answer["repeated"]) == (200, 1, False)
        status, answer, _ = await post(node, row, Idempotency_Key="k")
        assert (status, answer["repeated"]) == (200, True)
        assert (await post(node, row + row, Idempotency_Key="k"))[0] == 422
        status, answer, _ = await post(cluster["ada"], row, Idempotency_Key="k")
        assert (status, answer["repeated"]) == (200, True)
        assert (await post(node, row, Content_Type="text/plain"))[0] == 415
        assert (await post(node, b"x" * 9_000_000))[0] == 413
        assert (await post(node, row, Origin="http://elsewhere.example"))[0] == 403
    assert stored(node, "hands") == [1]


@pytest.mark.parametrize(
    "kind, text, pieces",
    [
        ("", b'{"n":1}\n{"n":2}', [(0, b'{"n":1}\n'), (1, b'{"n":2}')]),
        ("", b"a,b\n1,2\n3,4", [(0, b"a,b\n1,2\n"), (1, b"a,b\n3,4")]),
        ("csv", b"a,b\n", [(0, b"a,b\n")]),
        ("", b"not json", [(0, b"not json")]),
        ("ndjson", b"", []),
    ],
)
def test_pieces_are_complete_records(kind: str, text: bytes, pieces: list[tuple[int, bytes]], tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(text)
    with open(tmp_path / "text", "rb") as file:
        assert list(Records(file, kind or None)) == pieces


def test_a_pipe_is_cut_between_records() -> None:
    read, write = os.pipe()
    os.write(write, b'a,b\n1,"x\n')
    with os.fdopen(read, "rb") as file:
        found = iter(Records(file, "csv"))
        os.write(write, b'y"\n2,')
        assert next(found) == (0, b'a,b\n1,"x\ny"\n')
        os.write(write, b"z\n3")
        assert next(found) == (2, b"a,b\n2,z\n")
        os.close(write)
        assert list(found) == [(3, b"a,b\n3")]
