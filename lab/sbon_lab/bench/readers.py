"""Bytes over the network for several readers of one stream at a node (``sbon bench readers``).

Two nodes' streams with real connections between them. The readers share a connection, or have one each, and one more run has a
reader that stops after its first frames. Bytes are all that the host has sent, by the counters of its transport, and every
reader's frames are compared with those that were written.
"""

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from sbon_lab.bench.sites import Site
from sbon_lab.experiments.harness.experiment import Found, Notify, Row, ignore
from sbon_node.base.clock import Clock
from sbon_node.base.logging.output import LogSettings, configure
from sbon_node.model.frames import FrameDraft
from sbon_node.streams.links.link import Link
from sbon_node.streams.links.shared import SharedConnections
from sbon_node.streams.settings import StreamSettings

READERS = (1, 2, 4, 8)
STREAM = "stream"
FRAME_BYTES = 64 * 1024
ROWS = 1000
WRITTEN_AT_ONCE = 4


def run(frames: int = 400, *, seed: int = 1, notify: Notify = ignore, found: Found = ignore) -> dict[str, Any]:
    """Return a row for each number of readers: bytes that the host sent, with a connection each and with a shared one."""
    configure(LogSettings(level="warning"))
    rng = random.Random(seed)
    payloads = [rng.randbytes(FRAME_BYTES) for _ in range(frames)]
    return {"name": "readers", "rows": asyncio.run(_rows(payloads, notify, found))}


async def _rows(payloads: list[bytes], notify: Notify, found: Found) -> list[Row]:
    rows = []
    for readers in READERS:
        notify(f"{readers} readers")
        alone, wrong = await _sent_bytes(payloads, readers, shared=False)
        shared, wrong_shared = await _sent_bytes(payloads, readers, shared=True)
        stopped, wrong_stopped = await _sent_bytes(payloads, readers, shared=True, stopped=True)
        rows.append(
            {
                "readers": readers,
                "frames": len(payloads),
                "payload_bytes": len(payloads) * FRAME_BYTES,
                "alone_bytes": alone,
                "shared_bytes": shared,
                "ratio": round(shared / alone, 4),
                "beside_a_stopped_reader_bytes": stopped,
                "wrong_frames": wrong + wrong_shared + wrong_stopped,
            }
        )
        found(rows[-1])
    return rows


async def _sent_bytes(payloads: list[bytes], readers: int, *, shared: bool, stopped: bool = False) -> tuple[int, int]:
    """Return the bytes that the host has sent, and the number of frames that a reader got wrong or not at all."""
    clock = Clock()
    settings = msgspec.structs.replace(StreamSettings(), **({} if shared else {"shared_window_bytes": 0}))
    with tempfile.TemporaryDirectory() as folder:
        host, node = Site("host", Path(folder), clock), Site("node", Path(folder), clock)
        await host.start()
        connections = SharedConnections(node.peers, settings)
        names = [f"reader {index}" for index in range(readers)] + ["stopped"] * stopped
        links = [
            Link(
                STREAM,
                name,
                locate=lambda: host.address,
                peers=connections,
                clock=clock,
                settings=settings,
                rng=random.Random(index),
            )
            for index, name in enumerate(names)
        ]
        try:
            host.outbox.open_stream(STREAM, "source")
            for link in links:
                link.start()
            while len(host.outbox.link_counts(STREAM).links) < len(links):  # noqa: ASYNC110 - they are few, and here
                await asyncio.sleep(0.01)
            reading = [asyncio.ensure_future(_read(link, payloads)) for link in links[:readers]]
            await _write(host, payloads)
            wrong = sum(await asyncio.gather(*reading))
            return host.sent_bytes, wrong
        finally:
            for link in links:
                await link.close()
            await connections.close()
            await node.close()
            await host.close()


async def _write(host: Site, payloads: list[bytes]) -> None:
    for start in range(0, len(payloads), WRITTEN_AT_ONCE):
        await host.outbox.wait_room(STREAM)
        drafts = [FrameDraft(payload=payload, rows=ROWS) for payload in payloads[start : start + WRITTEN_AT_ONCE]]
        host.outbox.write_source(STREAM, drafts, b"")
        await asyncio.sleep(0)


async def _read(link: Link, payloads: list[bytes]) -> int:
    """Read to the end; return the number of frames that differ."""
    wrong = done = 0
    while done < len(payloads):
        await link.wait(done)
        upto = link.inbox.received
        wrong += sum(frame.payload != payloads[frame.number - 1] for frame in link.inbox.frames(done, upto))
        link.acknowledge(upto)
        done = upto
    return wrong
