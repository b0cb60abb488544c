"""Files of an operator are copied to another node over real sockets, whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from sbon_node.engine.copies.listing import CopyLimits
from sbon_node.engine.copies.sender import CHUNK_BYTES
from sbon_node.net.peers import Expected, FrameChannel, Identity
from sbon_node.net.transport import ConnectionLostError
from sbon_protocol.errors import SbonError
from sbon_protocol.messages import Chunk, CopyOpened, Hello, OpenCopy, Refused, WantFiles
from tests.engine.copies.two_nodes import ATTEMPT, CONTENTS, OPERATOR, Cut, contents_of, impostor, two_nodes, until


async def refused(receiving: Any) -> str:
    with pytest.raises(SbonError) as caught:
        await receiving
    return caught.value.code


async def test_a_copy_has_every_byte_and_reports_its_progress(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as nodes:
        files = nodes.offer(CONTENTS)
        assert await nodes.receive() == CONTENTS
        distinct = {file.digest: file.bytes for file in files}
        assert {progress.total_bytes for progress in nodes.progress} == {sum(distinct.values())}
        copied = [progress.copied_bytes for progress in nodes.progress]
        assert (copied[0], copied[-1]) == (0, sum(distinct.values()))
        assert copied == sorted(copied)


async def test_a_copy_of_many_files_needs_no_round_trip_for_each(tmp_path: Path) -> None:
    contents = {f"{number}": b"%d" % number for number in range(1500)}
    async with two_nodes(tmp_path) as nodes:
        nodes.offer(contents)
        assert await nodes.receive(limits=CopyLimits(1500, 2**20)) == contents


async def test_a_cut_connection_goes_on_at_the_first_missing_byte(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as nodes:
        nodes.offer(CONTENTS)
        cut = Cut(nodes.peers, [5, 3, 1000])
        assert await nodes.receive(cut) == CONTENTS
        first, second, _ = cut.chunks
        assert (len(first), len(second)) == (5, 3)
        taken = [chunk for chunks in cut.chunks for chunk in chunks if chunk[0] != 0]
        assert len(taken) == len(set(taken))
        assert second[1] == (3, first[-1][1] + CHUNK_BYTES)


async def test_a_later_copy_brings_only_the_missing_files_and_deletes_the_others(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as nodes:
        nodes.offer(CONTENTS)
        await nodes.receive()
        later = {path: content for path, content in CONTENTS.items() if path != "offsets/7"} | {"offsets/8": b"later"}
        files = nodes.offer(later)
        cut = Cut(nodes.peers, [1000])
        assert await nodes.receive(cut) == later
        assert [chunk for chunk in cut.chunks[0] if chunk[0]] == [(len(later), 0)]
        assert sorted(contents_of(tmp_path / "received")) == sorted({file.digest for file in files})


def change(path: Path, byte: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(70_000)
        file.write(byte)


@pytest.mark.parametrize("times, code", [(1, ""), (2, "checkpoint-damaged")])
async def test_a_damaged_file_is_fetched_once_more(tmp_path: Path, times: int, code: str) -> None:
    async with two_nodes(tmp_path) as nodes:
        nodes.offer(CONTENTS)
        damaged = tmp_path / "offered" / "state/0/0/2.snapshot"
        right = CONTENTS["state/0/0/2.snapshot"][70_000:70_001]
        change(damaged, b"?" if right != b"?" else b"!")
        receiving = asyncio.create_task(nodes.receive())
        if times == 1:
            await until(lambda: nodes.progress and nodes.progress[-1].copied_bytes > 400_000)
            change(damaged, right)
            assert await receiving == CONTENTS
        else:
            assert await refused(receiving) == code
            assert not (tmp_path / "assembled").exists()


@pytest.mark.parametrize("limits", [CopyLimits(5, 2**30), CopyLimits(100, 1_100_000)])
async def test_a_copy_over_the_limits_is_refused_before_its_files_come(tmp_path: Path, limits: CopyLimits) -> None:
    async with two_nodes(tmp_path) as nodes:
        nodes.offer(CONTENTS)
        assert await refused(nodes.receive(limits=limits)) == "checkpoint-too-large"
        assert not (tmp_path / "received").exists()


@pytest.mark.parametrize(
    "node, instance, attempt",
    [("c", "i-b", ATTEMPT), ("b", "i-earlier", ATTEMPT), ("b", "", ATTEMPT), ("b", "i-b", "another")],
)
async def test_a_copy_is_for_one_node_and_one_attempt(tmp_path: Path, node: str, instance: str, attempt: str) -> None:
    async with two_nodes(tmp_path) as nodes:
        nodes.offer(CONTENTS)
        peers = nodes.peers_of(node, instance)
        assert await refused(nodes.receive(peers, attempt=attempt)) == "copy-unknown"
        await peers.close()


@pytest.mark.one_part_per_commit("copies in virtual time", parts=6)
async def test_the_receiver_takes_nothing_from_another_node_at_the_address(tmp_path: Path) -> None:
    async def serve(channel: FrameChannel, hello: Hello) -> None:
        raise AssertionError("the receiver has accepted it")

    async with two_nodes(tmp_path, stall_s=0.5) as nodes, impostor(nodes, serve, Identity("sbon", "a", "i-other")):
        assert await refused(nodes.receive()) == "copy-stalled"
        assert await refused(nodes.receive(expect=Expected("z", ""))) == "copy-stalled"


async def test_a_connection_that_asks_for_no_copy_is_closed(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, handshake_s=0.1) as nodes, asyncio.timeout(5.0):
        channel = await nodes.peers.open_copy(nodes.address)
        with pytest.raises(ConnectionLostError):
            await channel.receive()


async def test_a_connection_of_another_role_carries_no_copy(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as nodes:
        nodes.offer(CONTENTS)
        nodes.server.on_stream(nodes.sender.serve)
        channel = await nodes.peers.open_copy(nodes.address)
        await channel.send(OpenCopy(operator=OPERATOR, attempt=ATTEMPT, credit_bytes=2**20))
        assert isinstance(await channel.receive(), CopyOpened)
        channel.close()
        plain = await nodes.peers._shake(nodes.address, "rpc", Expected())
        await plain.send(OpenCopy(operator=OPERATOR, attempt=ATTEMPT, credit_bytes=2**20))
        with pytest.raises(Exception, match=r"closed|lost|ended"):
            await plain.receive()


LISTS = {
    "no JSON": b"{",
    "leads out": json.dumps({"files": [{"path": "a/../../b", "bytes": 1, "digest": "0" * 64}]}).encode(),
    "absolute": json.dumps({"files": [{"path": "/etc/passwd", "bytes": 1, "digest": "0" * 64}]}).encode(),
    "twice": json.dumps({"files": [{"path": "a", "bytes": 1, "digest": digit * 64} for digit in "01"]}).encode(),
    "one path, spelt twice": json.dumps(
        {"files": [{"path": p, "bytes": 1, "digest": d * 64} for p, d in (("a/b", "0"), ("a/./b", "1"))]}
    ).encode(),
    "file and folder": json.dumps(
        {"files": [{"path": p, "bytes": 1, "digest": d * 64} for p, d in (("a", "0"), ("a/b", "1"))]}
    ).encode(),
    "one digest, two sizes": json.dumps(
        {"files": [{"path": p, "bytes": n, "digest": "0" * 64} for p, n in (("a", 1), ("b", 2))]}
    ).encode(),
}


@pytest.mark.parametrize("listing", LISTS.values(), ids=LISTS)
async def test_a_list_that_cannot_be_true_is_refused(tmp_path: Path, listing: bytes) -> None:
    async def serve(channel: FrameChannel, hello: Hello) -> None:
        await channel.receive()
        await channel.send(CopyOpened(files=1, list_bytes=len(listing), list_digest=hashlib.sha256(listing).hexdigest()))
        await channel.receive()
        await channel.send(Chunk(file=0, offset=0, payload=listing))
        await channel.receive()

    async with two_nodes(tmp_path, stall_s=0.5) as nodes, impostor(nodes, serve):
        assert await refused(nodes.receive()) == "copy-stalled"
        assert not (tmp_path / "received").exists()


CHUNKS = {
    "more than the file has": Chunk(file=1, offset=0, payload=b"four"),
    "another file": Chunk(file=2, offset=0, payload=b"x"),
    "another place": Chunk(file=1, offset=1, payload=b"x"),
    "nothing": Chunk(file=1, offset=0, payload=b""),
}


@pytest.mark.parametrize("chunk", CHUNKS.values(), ids=CHUNKS)
async def test_bytes_that_were_not_asked_for_are_not_stored(tmp_path: Path, chunk: Chunk) -> None:
    listing = json.dumps({"files": [{"path": "a", "bytes": 3, "digest": "0" * 64}]}).encode()

    async def serve(channel: FrameChannel, hello: Hello) -> None:
        await channel.receive()
        await channel.send(CopyOpened(files=1, list_bytes=len(listing), list_digest=hashlib.sha256(listing).hexdigest()))
        await channel.receive()
        await channel.send(Chunk(file=0, offset=0, payload=listing))
        await channel.send(chunk)
        await channel.receive()

    async with two_nodes(tmp_path, stall_s=0.5) as nodes, impostor(nodes, serve):
        assert await refused(nodes.receive()) == "copy-stalled"
        assert all(content == b"" for content in contents_of(tmp_path / "received").values())


async def test_the_sender_keeps_to_the_credit_and_refuses_wrong_requests(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as nodes:
        nodes.offer(CONTENTS)
        for want in (WantFiles(numbers=(99,)), WantFiles(numbers=(1,), offset=5), WantFiles(numbers=(1,) * 4096 + ())):
            channel = await nodes.peers.open_copy(nodes.address)
            await channel.send(OpenCopy(operator=OPERATOR, attempt=ATTEMPT, credit_bytes=0))
            await channel.receive()
            await channel.send(want)
            await channel.send(WantFiles(numbers=(1,)))
            with pytest.raises(Exception, match=r"closed|lost|ended"):
                await channel.receive()
        channel = await nodes.peers.open_copy(nodes.address)
        await channel.send(OpenCopy(operator=OPERATOR, attempt=ATTEMPT, credit_bytes=2 * (CHUNK_BYTES + 64)))
        await channel.receive()
        await channel.send(WantFiles(numbers=(3,)))
        for _ in range(2):
            assert isinstance(await channel.receive(), Chunk)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await channel.receive()


async def test_a_withdrawn_copy_ends(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, bytes_s=65_536) as nodes:
        nodes.offer(CONTENTS)
        receiving = asyncio.create_task(nodes.receive())
        await until(lambda: nodes.progress)
        nodes.sender.withdraw(ATTEMPT)
        assert await refused(receiving) == "copy-withdrawn"
        assert nodes.sender.connections == 0


async def test_more_copies_wait_their_turn(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, copies=1) as nodes:
        nodes.sender.offer("first", OPERATOR, Expected("b", "i-b"), tmp_path, ())
        first = await nodes.peers.open_copy(nodes.address)
        await first.send(OpenCopy(operator=OPERATOR, attempt="first", credit_bytes=2**20))
        assert isinstance(await first.receive(), CopyOpened)
        nodes.offer(CONTENTS)
        second = await nodes.peers.open_copy(nodes.address)
        await second.send(OpenCopy(operator=OPERATOR, attempt=ATTEMPT, credit_bytes=2**20))
        refusal = await second.receive()
        assert isinstance(refusal, Refused)
        assert refusal.code == "too-many-copies"
        receiving = asyncio.create_task(nodes.receive())
        await asyncio.sleep(0.1)
        assert not nodes.progress
        first.close()
        assert await receiving == CONTENTS


async def test_a_copy_keeps_to_its_rate(tmp_path: Path) -> None:
    rate, size = 2**20, 2**20
    async with two_nodes(tmp_path, bytes_s=rate) as nodes:
        nodes.offer({"large": os.urandom(size)})
        began = time.monotonic()
        await nodes.receive()
        assert time.monotonic() - began > 0.85 * size / rate


@pytest.mark.only_in_test_all("128 MiB over the loopback")
async def test_other_work_of_its_node_has_its_turn_between_the_pieces_of_a_copy(tmp_path: Path) -> None:
    """Sender and receiver share one event loop here: it comes round at least once for each piece."""
    turns, size = 0, 128 * 2**20

    async def work() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with two_nodes(tmp_path) as nodes:
        nodes.offer({"large": os.urandom(size)})
        working = asyncio.create_task(work())
        await nodes.receive(limits=CopyLimits(10, 2**30))
        working.cancel()
    assert turns >= size / CHUNK_BYTES
