"""Rows that users post to the sources of a drawn query, at rates and with selectivities that change."""

import base64
from collections.abc import AsyncIterator

import msgspec
import numpy as np

from sbon_lab.experiments.adaptation.world import ROW_BYTES, Flow
from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_node.connectors.sources.push import Post
from sbon_protocol.errors import SbonError

MEDIA_TYPE = "application/x-ndjson"
STRIDE = 1_000_000
"""Distance of the ids of two posts. Rows with equal ids of two sources are partners."""


async def keep_posting(cluster: SimulatedCluster, flow: Flow, every_s: float, rng: np.random.Generator) -> None:
    """Post the rows of a source for ever, those of ``every_s`` at a time; a post's fraction of a row goes to the next one.

    Raises :class:`SbonError` ``simulation-failed`` if the source refuses rows, and as its refusals of posts.
    """
    number, owed, daemon, due_s = 0, 0.0, cluster.nodes[flow.source.node].daemon, cluster.clock.now()
    while True:
        due_s += every_s
        await cluster.clock.sleep(max(0.0, due_s - cluster.clock.now()))
        owed += flow.rows_s * every_s
        count, owed, number = int(owed), owed % 1.0, number + 1
        if count:
            rows = rows_of(flow, count, number * STRIDE, cluster.clock.wall_ms() - 1000 * every_s, every_s, rng)
            post = Post(MEDIA_TYPE, _body(b"\n".join(rows)))
            pushed = await cluster.answer(
                flow.source.node, daemon.hosting.pushes.push(flow.source.stream, flow.source.name, post)
            )
            if pushed.rows != count:
                raise SbonError(
                    "simulation-failed", f"{pushed.rows} of {count} rows were taken: {pushed}", where=flow.source.name
                )


def rows_of(flow: Flow, count: int, first: int, from_ms: float, span_s: float, rng: np.random.Generator) -> list[bytes]:
    """Return ``count`` rows with ids from ``first`` on, evenly spread over ``span_s`` from a time.

    Their text is random, so that frames do not become small by compression.
    """
    times = np.rint(from_ms + 1000 * span_s * np.arange(count) / count).astype(np.int64).tolist()
    return [
        msgspec.json.encode({"id": first + i, "v": v, "share": flow.share, "t": _text(rng), "ts": at_ms})
        for i, (v, at_ms) in enumerate(zip(rng.uniform(size=count).tolist(), times, strict=True))
    ]


def _text(rng: np.random.Generator) -> str:
    return base64.b64encode(rng.bytes(ROW_BYTES * 3 // 4)).decode()


async def _body(rows: bytes) -> AsyncIterator[bytes]:
    yield rows
