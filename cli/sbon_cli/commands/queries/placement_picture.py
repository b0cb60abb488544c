"""A query and the candidates of its operators, drawn in the cost space."""

from __future__ import annotations

from pathlib import Path

from sbon import SbonError
from sbon.model import PlacementExplanation
from sbon_cli.commands.nodes.map import write_figure
from sbon_cli.commands.nodes.picture_labels import label
from sbon_node.extras import matplotlib_figure
from sbon_node.space.projection import principal_axes


def save(explanation: PlacementExplanation, file: Path) -> None:
    """Draw nodes on the two principal axes, the query's links between them, and a line from each operator's best point, a cross,
    to its host.

    Raises :class:`SbonError` ``nobody-placed``, ``input-missing`` where matplotlib is not installed, ``not-written``.
    """
    vectors = {node.node: node.vector for node in explanation.nodes if node.vector is not None}
    if not vectors:
        raise SbonError("nobody-placed", "no node of this query has a coordinate yet", hint="ask again in some seconds")
    virtual = {operator.id: operator.virtual for operator in explanation.operators if operator.virtual}
    points, shown = principal_axes([*vectors.values(), *virtual.values()])
    at = dict(zip([*vectors, *(f"virtual {operator_id}" for operator_id in virtual)], points.tolist(), strict=True))
    hosts = {operator.id: operator.node for operator in explanation.operators}
    ends = {**explanation.pinned, **hosts}
    figure = matplotlib_figure()()
    axes = figure.add_subplot()
    for link in explanation.links:
        if link.source_node in at and link.target_node in at:
            (x, y), (u, v) = at[link.source_node], at[link.target_node]
            axes.annotate("", (u, v), xytext=(x, y), arrowprops={"arrowstyle": "->", "color": "tab:blue", "lw": 1.2}, zorder=2)
    for kind, marker, colour, size, nodes in (
        ("candidate", "o", "lightgrey", 25, set(vectors) - set(ends.values())),
        ("source or sink", "s", "tab:green", 50, {node for node in explanation.pinned.values() if node in vectors}),
        ("host", "o", "tab:red", 40, {node for node in hosts.values() if node in vectors}),
    ):
        some = [at[node] for node in sorted(nodes)]
        if some:
            axes.scatter([x for x, _ in some], [y for _, y in some], marker=marker, c=colour, s=size, label=kind, zorder=3)
    for number, operator in enumerate(virtual):
        x, y = at[f"virtual {operator}"]
        axes.scatter([x], [y], marker="x", c="black", s=40, zorder=4, label="best point for an operator" if not number else None)
        if hosts[operator] in at:
            u, v = at[hosts[operator]]
            axes.plot([x, u], [y, v], color="black", lw=0.8, ls=":", zorder=1)
    axes.legend(fontsize=7)
    axes.set(
        xlabel="ms",
        ylabel="ms",
        title=f"{explanation.query or 'the query'} by {explanation.strategy}; two axes show {shown:.0%} of the spread",
    )
    axes.set_aspect("equal", adjustable="datalim")
    names = [(node, *at[node]) for node in vectors] + [(operator_id, *at[f"virtual {operator_id}"]) for operator_id in virtual]
    label(figure, axes, names)
    write_figure(figure, file)
