"""The cost space in pictures: how coordinates settle, and where an operator goes in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from world import MOMENTS_S, World

from sbon_node.overlay.space.projection import principal_axes
from sbon_protocol.api.explanations import PlacementExplanation

Point = npt.NDArray[np.float64]

INK, BLUE, GREEN, RED, FAINT, GREY = "#222222", "#1f6fb2", "#2a7f3f", "#c0392b", "#dddddd", "#777777"
NAME_MS = 12.0
"""Distance within which only one of several nodes has its name drawn."""
OPERATOR = "q.o3"
"""The join, whose best place lies between its sources."""


def settling(world: World) -> Figure:
    """Left each node's way from the start to its place, right how wrong all pairs are meanwhile."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    vectors = world.places[:, :, :-1]
    flat, shown = principal_axes(vectors.reshape(-1, vectors.shape[2]))
    ways = flat.reshape(*vectors.shape[:2], 2)
    named: list[Point] = []
    for node, name in enumerate(world.nodes):
        left.plot(ways[:, node, 0], ways[:, node, 1], color=GREY, lw=0.6, alpha=0.7, zorder=1)
        if all(np.linalg.norm(ways[-1, node] - other) > NAME_MS for other in named):
            left.annotate(name, ways[-1, node], **_beside(ways[-1, node], ways[-1]), fontsize=7, color=INK)
            named.append(ways[-1, node])
    left.scatter(ways[-1, :, 0], ways[-1, :, 1], s=18, color=BLUE, zorder=2)
    left.set(xlabel="ms", ylabel="ms", title=f"Ways of {len(world.nodes)} nodes in the first {MOMENTS_S[-1]} seconds")
    left.margins(0.12)
    left.set_aspect("equal", adjustable="datalim")
    left.text(
        0.99, 0.01, f"two axes show {shown:.0%} of the spread", transform=left.transAxes, ha="right", fontsize=7, color=GREY
    )
    right.plot(MOMENTS_S, world.errors() * 100, color=RED, marker="o", markersize=3)
    right.set(xlabel="seconds since all nodes started", ylabel="median error of all pairs (%)", title="Estimates get better")
    right.set_xscale("log")
    right.set_xticks((1, 10, 60), labels=("1", "10", "60"))
    right.set_xticks((), minor=True)
    right.set_ylim(bottom=0)
    return figure


def placement(explanation: PlacementExplanation) -> Figure:
    """The join's virtual place, what the query would cost with it at each candidate, and the links of the placement chosen."""
    known = {one.node: one.vector for one in explanation.nodes if one.vector is not None}
    (operator,) = (one for one in explanation.operators if one.id == OPERATOR)
    points, _ = principal_axes([*known.values(), operator.virtual])
    at = dict(zip([*known, "virtual"], points, strict=True))
    costs = {one.node: one.measured for one in operator.candidates if one.measured is not None}
    least = min(costs.values())
    hosts = {**{one.id: one.node for one in explanation.operators}, **explanation.pinned}
    sources = sorted({node for vertex, node in explanation.pinned.items() if vertex.startswith("source/")})
    (sink,) = (node for vertex, node in explanation.pinned.items() if not vertex.startswith("source/"))
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    for link in explanation.links:
        ends = hosts[link.source], hosts[link.target]
        if ends[0] != ends[1]:
            width = 0.8 + float(np.log10(max(link.rate_bytes_s, 1.0))) * 0.7
            arrow = {"arrowstyle": "-|>", "color": BLUE, "lw": width, "shrinkA": 6, "shrinkB": 8}
            axes.annotate("", at[ends[1]], xytext=at[ends[0]], arrowprops=arrow, zorder=1)
    for node, place in at.items():
        if node == "virtual":
            continue
        chosen, end = node == operator.node, node in sources or node == sink
        colour = RED if chosen else GREEN if end else GREY
        marker = "s" if end else "o"
        axes.scatter(*place, s=90 if chosen else 45 if end else 22, color=colour, marker=marker, zorder=3)
        words = [node]
        if node in costs:
            words.append(f"{least:,.0f} B" if chosen else f"+{costs[node] / least - 1:.0%}")
        roles = [word for word, true in (("source", node in sources), ("consumer", node == sink)) if true]
        text = f"{', '.join([words[0], *roles])}\n{words[1]}" if len(words) > 1 else words[0]
        axes.annotate(text, place, **_beside(place, points), fontsize=7, color=colour if chosen else INK)
    axes.plot(*zip(at["virtual"], at[operator.node], strict=True), color=INK, lw=1, ls=":", zorder=2)
    axes.scatter(*at["virtual"], marker="x", s=70, color=INK, zorder=4)
    axes.annotate("virtual place of the join", at["virtual"], xytext=(8, -3), textcoords="offset points", fontsize=8, color=INK)
    axes.set(
        xlabel="ms", ylabel="ms", title=f"The join goes to {operator.node}: the least network usage of {len(costs)} candidates"
    )
    axes.margins(0.08)
    axes.set_aspect("equal", adjustable="datalim")
    return figure


def _beside(place: Point, places: Point) -> dict[str, Any]:
    """Where the name of a point is written: on the side its nearest neighbour is not."""
    ways = places - place
    apart = np.linalg.norm(ways, axis=1)
    x, y = ways[np.where(apart > 0, apart, np.inf).argmin()]
    sides = {"ha": "right" if x > 0 else "left", "va": "top" if y > 0 else "bottom"}
    return {"xytext": (-6 if x > 0 else 6, -3 if y > 0 else 3), "textcoords": "offset points", **sides}
