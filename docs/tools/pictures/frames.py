"""Frames between a producer and a reader that dies and comes back: who has what, as the producer's outbox knows it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from world import SEED

from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.outcome import Ended, run_cluster
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.api.columns import Column
from sbon_protocol.api.queries import SinkSpec, Submission

INK, BLUE, GREEN, RED, BAND, GREY = "#222222", "#1f6fb2", "#2a7f3f", "#c0392b", "#edf2f8", "#777777"
PRODUCER, READER, QUERY = "london", "singapore", "large"
ONE_WAY_S = 0.09
DIES_S, RETURNS_S, LOOKED_S = 3.0, 5.0, 9.0
"""After the first look: when the reader is killed, when it is started again, and how long frames are watched."""
STEP_S = 0.05


class Moment(NamedTuple):
    """Frame numbers: the newest that is visible, the last the reader has received, the last it has acknowledged."""

    at_s: float
    visible: int
    received: int
    acknowledged: int


def frames() -> Figure:
    seen = watched()
    at = [one.at_s for one in seen]
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.axvspan(DIES_S, RETURNS_S, color=BAND, zorder=0)
    axes.text((DIES_S + RETURNS_S) / 2, 1, "the reader is dead", ha="center", fontsize=8, color=RED)
    for name, colour, values in (
        ("visible at the producer", BLUE, [one.visible for one in seen]),
        ("acknowledged by the reader: stored there, forgotten here", GREEN, [one.acknowledged for one in seen]),
    ):
        axes.step(at, values, where="post", color=colour, lw=1.6, label=name)
    axes.fill_between(
        at,
        [one.acknowledged for one in seen],
        [one.visible for one in seen],
        step="post",
        color=GREY,
        alpha=0.25,
        lw=0,
        label="kept by the producer",
    )
    axes.set(xlabel="seconds", ylabel="number of the frame", xlim=(0, LOOKED_S), ylim=(0, seen[-1].visible + 3))
    axes.set_title("Frames are kept until they are acknowledged; a reader that returns continues after its last one")
    axes.legend(loc="upper left", fontsize=8)
    return figure


def watched() -> list[Moment]:
    """Raises :class:`RuntimeError` where a check of the simulation fails."""
    seen: list[Moment] = []

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        return SimulatedCluster(loop, SEED, (PRODUCER, READER), root, latency=lambda a, b: ONE_WAY_S)

    async def play(cluster: SimulatedCluster, root: Path) -> Ended:
        cluster.start()
        await cluster.together()
        await cluster.answer(PRODUCER, submit(cluster, root / "large.ndjson"))
        outbox = cluster.at(PRODUCER).outbox
        assert outbox is not None
        (stream,) = (name for name in outbox.streams() if name.startswith(f"{QUERY}-"))
        await cluster.until(lambda: outbox.latest(stream) > 0 and bool(outbox.link_counts(stream).links))
        begun = cluster.loop.time()
        while (at_s := cluster.loop.time() - begun) < LOOKED_S:
            if at_s >= DIES_S and cluster.at(READER).lives == 1 and cluster.at(READER).alive:
                cluster.crash(cluster.at(READER))
            if at_s >= RETURNS_S and not cluster.at(READER).alive:
                cluster.boot(cluster.at(READER))
            (link,) = outbox.link_counts(stream).links.values()
            seen.append(Moment(at_s, outbox.latest(stream), link.received, link.acknowledged))
            await cluster.sleep(STEP_S)
        return Ended(0, "watched")

    outcome = run_cluster(build, play, seed=SEED, max_time_s=600.0, replay="make pictures")
    if outcome.failure:
        raise RuntimeError(outcome.failure)
    return seen


async def submit(cluster: SimulatedCluster, path: Path) -> None:
    daemon = cluster.at(PRODUCER).daemon
    columns = (Column("ts", "timestamp"), Column("size", "double"))
    await daemon.queries.declarations.create_stream(StreamDeclaration(name="trades", schema=columns, event_time="ts"))
    await daemon.hosting.sources.attach(
        SourceDeclaration(stream="trades", name=PRODUCER, node=PRODUCER, connector="generator", options={"rate": 50.0})
    )
    sink = SinkSpec(kind="file", options={"path": str(path)})
    wanted = "SELECT ts, size FROM trades WHERE size > 0.5"
    async for _ in daemon.submitting.submitter.submit(
        Submission(sql=wanted, name=QUERY, strategy="producer", consumer=READER, sink=sink)
    ):
        pass
