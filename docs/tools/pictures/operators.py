"""A query cut into operators, with the nodes they would run on and what flows between them."""

from __future__ import annotations

import re
from textwrap import wrap

from matplotlib.figure import Figure
from world import SQL

from sbon_protocol.api.explanations import ExplainedComponent, Explanation

INK, BLUE, GREEN, RED, PAPER, GREY = "#222222", "#1f6fb2", "#2a7f3f", "#c0392b", "#edf2f8", "#777777"
COLOURS = {"source": GREEN, "operator": RED, "sink": GREEN}
WIDTH = 16


def operators(plan: Explanation) -> Figure:
    """From sources on the left to the sink on the right, a column each step; of a link its rate as planned."""
    parts = {part.id: part for part in plan.components}
    column: dict[str, int] = {}

    def depth(part: ExplainedComponent) -> int:
        column[part.id] = 1 + max((depth(parts[one]) for one in part.reads), default=-1)
        return column[part.id]

    deepest = depth(parts["sink"])
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlim=(-0.45, deepest + 0.45), ylim=(-0.5, 2.4))
    axes.axis("off")
    at: dict[str, tuple[float, float]] = {}
    for step in range(deepest + 1):
        names = sorted((name for name, one in column.items() if one == step), key=lambda name: _order(parts[name], at))
        for row, name in enumerate(names):
            at[name] = (step, 2 - row if len(names) > 1 else 1.0)
    for link in plan.links:
        (x, y), (u, v) = at[link.stream], at[link.target]
        arrow = {"arrowstyle": "-|>", "color": BLUE, "lw": 1.4}
        axes.annotate("", (u - _half(parts[link.target]), v), xytext=(x + _half(parts[link.stream]), y), arrowprops=arrow)
        far = link.source_node != link.target_node
        label = f"{_rate(link.bytes_s)}, {link.latency_ms:.0f} ms" if far else _rate(link.bytes_s)
        side = (
            {"ha": "left", "va": "bottom"}
            if y > v
            else {"ha": "left", "va": "top"}
            if y < v
            else {"ha": "center", "va": "bottom"}
        )
        axes.text((x + u) / 2, (y + v) / 2 + (0.05 if y >= v else -0.05), label, **side, fontsize=8, color=BLUE)
    for name, (x, y) in at.items():
        part = parts[name]
        colour = COLOURS[part.kind]
        box = {"boxstyle": "round,pad=0.35", "facecolor": PAPER, "edgecolor": colour}
        axes.text(x, y, _label(part), ha="center", va="center", fontsize=9, color=INK, bbox=box)
        axes.text(x, y - 0.27, f"at {part.node}", ha="center", va="top", fontsize=8, color=colour)
    axes.set_title("\n".join(SQL.splitlines()), fontsize=8, family="monospace", loc="left", color=INK)
    return figure


def _half(part: ExplainedComponent) -> float:
    """Return half the width of the component's box, with a margin."""
    return 0.36 if part.kind == "source" else 0.29


def _order(part: ExplainedComponent, at: dict[str, tuple[float, float]]) -> tuple[float, str]:
    """Beside what it reads, so that links do not cross."""
    above = [-at[one][1] for one in part.reads if one in at]
    return (sum(above) / len(above) if above else 0.0, part.id)


def _label(part: ExplainedComponent) -> str:
    if part.kind == "sink":
        return "consumer"
    if part.kind == "source":
        return re.sub(r"source/(\w+)@.*", r"source of \1", part.id)
    kinds = {"JOIN": "join", "GROUP BY": "aggregate", "WHERE": "filter"}
    kind = next(name for word, name in kinds.items() if word in part.fragment)
    conditions = {"join": r"ON (.*)", "aggregate": r"GROUP BY (.*?)\) AS", "filter": r"WHERE (.*)"}
    found = re.search(conditions[kind], part.fragment)
    detail = found[1].replace("in0.", "").replace("in1.", "") if found and kind == "filter" else ""
    return "\n".join([kind, *wrap(detail, WIDTH)])


def _rate(bytes_s: float) -> str:
    return f"{bytes_s / 1000:.1f} kB/s" if bytes_s >= 100 else f"{bytes_s:.0f} B/s"
