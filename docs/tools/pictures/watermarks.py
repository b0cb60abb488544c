"""Rows out of order, the watermark that follows them, and the windows it closes: by the rule that sources have."""

from __future__ import annotations

import random

import pyarrow as pa
from matplotlib.figure import Figure

from sbon_node.connectors.sources.event_time import EventTime

INK, BLUE, GREEN, RED, BAND, GREY = "#222222", "#1f6fb2", "#2a7f3f", "#c0392b", "#edf2f8", "#777777"
SEED, ROWS, DELAY_S, WINDOW_S, FRAME = 6, 60, 8.0, 20.0, 5
"""Rows one second apart that arrive up to some seconds late, five in a frame; the stream's delay, the query's window."""


def watermarks() -> Figure:
    rng = random.Random(SEED)
    born = [float(second) for second in range(ROWS)]
    arrived = sorted((second + min(rng.expovariate(1 / 3), 20.0), second) for second in born)
    rule = EventTime("ts", int(DELAY_S * 1000))
    kept: list[tuple[float, float]] = []
    late: list[tuple[float, float]] = []
    steps: list[tuple[float, float]] = []
    for first in range(0, ROWS, FRAME):
        frame = arrived[first : first + FRAME]
        times = pa.array([int(second * 1000) for _, second in frame], pa.timestamp("ms"))
        found = rule.sort(pa.record_batch({"ts": times}))
        rule.advance(found)
        for number, row in enumerate(frame):
            (kept if number in found.kept else late).append(row)
        steps.append((frame[-1][0], rule.watermark_ms / 1000))
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    axes = figure.add_subplot()
    end_s = arrived[-1][0]
    for number in range(int(ROWS / WINDOW_S)):
        low = number * WINDOW_S
        if number % 2 == 0:
            axes.axhspan(low, low + WINDOW_S, color=BAND, zorder=0)
        axes.text(
            end_s + 1, low + WINDOW_S / 2, f"window\n{low:.0f} to {low + WINDOW_S:.0f} s", va="center", fontsize=8, color=INK
        )
        closed = next((at for at, watermark in steps if watermark >= low + WINDOW_S), None)
        if closed is not None:
            axes.plot([closed, closed], [low, low + WINDOW_S], color=GREEN, lw=1.2, ls="--")
            axes.annotate(
                "its result is given out", (closed, low + 2), xytext=(4, 0), textcoords="offset points", fontsize=8, color=GREEN
            )
    axes.scatter(*zip(*kept, strict=True), s=14, color=BLUE, label="row", zorder=3)
    axes.scatter(*zip(*late, strict=True), s=34, color=RED, marker="x", label="late row: dropped and counted", zorder=3)
    axes.step(*zip(*steps, strict=True), where="post", color=INK, lw=1.6, label="watermark of the frames", zorder=2)
    axes.set(xlabel="arrival at the source (s)", ylabel="event time (s)", xlim=(-1, end_s + 9), ylim=(-3, ROWS + 1))
    axes.set_title(f"A stream with a delay of {DELAY_S:.0f} seconds: the watermark is the greatest time seen, less the delay")
    axes.legend(loc="upper left", fontsize=8)
    return figure
