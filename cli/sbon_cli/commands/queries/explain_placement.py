"""``sbon explain placement``: the hosts of a query's operators, the alternatives, and what decides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from sbon import SbonError
from sbon.model import Alternative, BoundCheck, PlacementExplanation, QuerySpec, TurningPoint, WeighedOperator
from sbon_cli.client import Client
from sbon_cli.commands.nodes.map import check_suffix, label, write_figure
from sbon_cli.commands.queries.query_flags import query_options
from sbon_cli.options.names import QUERY
from sbon_cli.terminal.output import asks_node, bytes_text, cell_text, err, print_json, print_table, say
from sbon_cli.terminal.reading import text_of
from sbon_node.base.extras import matplotlib_figure
from sbon_node.overlay.space.projection import principal_axes
from sbon_node.placement.model.from_plan import CONSUMER

QUERY_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""A single word is the name of a query: no SQL is a single word."""
SHOWN = 8
"""Most candidates of an operator, and most turning points, on a terminal; JSON has all."""


@click.command()
@click.argument("what", type=QUERY, metavar="SQL|@FILE|-|QUERY")
@query_options("adapt", "decompose", "join_window_ms", "on_error")
@click.option(
    "--out",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw query and candidates in the cost space: .png, .svg or .pdf.",
)
@asks_node
def placement(api: str, what: str, fields: dict[str, Any], file: Path | None, json_: bool) -> None:
    """Explains the placement of each operator; starts and reserves nothing.

    It shows for each operator the candidates, the query's cost with the operator there (by the coordinates, and by measurements),
    and why each lost; the same query under every other strategy; the slack of capacity and bounds; and the latencies at which
    another placement would be better.

    For a running QUERY it compares the current placement with the one that would be chosen now, with the options of its
    submission.
    """
    check_suffix(file)
    client = Client(api)
    if QUERY_NAME.fullmatch(what):
        explanation = client.explain_query_placement(what)
    else:
        explanation = client.explain_placement(QuerySpec(sql=text_of(what), **fields))
    if file is not None:
        save(explanation, file)
        err().print(f"written: {escape(str(file))}")
    if json_:
        print_json(explanation)
    elif file is None:
        show_placement(explanation)


def show_placement(shown: PlacementExplanation) -> None:
    """Show the explanation in the width of the terminal."""
    title = f"[bold]{escape(shown.query)}[/] {shown.state}" if shown.query else "not submitted"
    now_chosen = f" (now {shown.now.strategy})" if shown.now.strategy != shown.strategy else ""
    say(f"{title}; by {shown.strategy}{now_chosen}, for {escape(shown.objective)}, rows to {escape(shown.consumer)}")
    say(f"[dim]{escape(shown.sql.strip())}[/]")
    if shown.now_reason:
        say(escape(shown.now_reason))
    if shown.now.refused:
        say(f"[bold red]refused[/] {escape(shown.now.refused)}")
    for line in _away(shown):
        say(f"[bold red]{escape(line)}[/]")
    if shown.query:
        say("[dim]by the planned rates; for the measured ones: sbon explain --query " + f"{shown.query}[/]")
    say()
    for line in _tree(shown):
        say(line)
    say()
    if not shown.current.refused:
        say(f"it costs {_figures(shown, shown.current)}")
    lost_ends = [vertex for vertex, node in shown.pinned.items() if node in shown.away]
    if shown.query and lost_ends:
        say(f"it cannot be placed again as long as {escape(', '.join(lost_ends))} cannot be reached")
    elif shown.query and shown.now.hosts and shown.now.hosts != shown.current.hosts:
        say(f"now it would be {_moved(shown.current.hosts, shown.now.hosts)}: {_figures(shown, shown.now)}")
    elif shown.query and shown.now.hosts:
        say("now it would be placed the same")
    if shown.best.hosts and shown.best.hosts != shown.current.hosts and not lost_ends:
        say(f"best of the candidates: {_moved(shown.current.hosts, shown.best.hosts)}: {_figures(shown, shown.best)}")
    for operator in shown.operators:
        _show_operator(shown, operator)
    _show_strategies(shown)
    _show_profiles(shown)
    _show_checks(shown.checks)
    _show_turns(shown)


def _away(explanation: PlacementExplanation) -> list[str]:
    """Return the nodes that cannot be asked, and the query's components there."""
    at = {**explanation.pinned, **{operator.id: operator.node for operator in explanation.operators}}
    vertices = {node: ", ".join(vertex for vertex in at if at[vertex] == node) for node in explanation.away}
    return [f"{node} {how}: {vertices[node]}; its last known latencies count" for node, how in explanation.away.items()]


def _tree(explanation: PlacementExplanation) -> list[str]:
    """Return a line for each component, from the sink to the sources; a component with two readers has its inputs once."""
    at = {**explanation.pinned, **{operator.id: operator.node for operator in explanation.operators}}
    distance_ms = {(operator.id, c.node): c.distance_ms for operator in explanation.operators for c in operator.candidates}
    lines: list[str] = []
    drawn: set[str] = set()

    def add(vertex: str, flow: str, branch: str, below: str) -> None:
        node = at[vertex] or "nowhere"
        near_ms = distance_ms.get((vertex, node))
        near = "" if near_ms is None else f", {near_ms:.1f} ms from the best point for it"
        again = " (above)" if vertex in drawn else ""
        note = f" [red]({escape(explanation.away[node])})[/]" if node in explanation.away else ""
        lines.append(f"{branch}[bold]{escape(vertex)}[/] at {escape(node)}{note}{near}{flow}{again}")
        links = [] if again else [link for link in explanation.links if link.target == vertex]
        drawn.add(vertex)
        for position, link in enumerate(links):
            last = position == len(links) - 1
            ms = "?" if link.latency_ms is None else f"{link.latency_ms:.1f}"
            origin = " measured" if link.rate_measured else ""
            flow = f" [dim]{bytes_text(link.rate_bytes_s)}/s{origin} over {ms} ms ({_known(link.known, link.age_s)})[/]"
            add(link.source, flow, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))

    add(CONSUMER, "", "", "")
    return lines


def _show_operator(explanation: PlacementExplanation, operator: WeighedOperator) -> None:
    moves = f", now {escape(operator.now)}" if explanation.query and operator.now not in ("", operator.node) else ""
    say(f"\n[bold]{escape(operator.id)}[/] at {escape(operator.node or 'nowhere')}{moves}")
    if operator.reason:
        say(f"[dim]{escape(operator.reason)}[/]")
    shown = [candidate for i, candidate in enumerate(operator.candidates) if i < SHOWN or candidate.node == operator.node]
    print_table(
        ("candidate", "ms off", "predicted", "measured", "cores free", "why not"),
        [
            (
                candidate.node,
                candidate.distance_ms,
                _cost(explanation, candidate.predicted),
                _cost(explanation, candidate.measured),
                None if candidate.free is None else f"{candidate.free.cores:.2f}",
                candidate.lost or "chosen",
            )
            for candidate in shown
        ],
        empty="no candidates",
    )
    if len(shown) < len(operator.candidates):
        say(f"[dim]and {len(operator.candidates) - len(shown)} more, with --json[/]")


def _show_strategies(explanation: PlacementExplanation) -> None:
    base = explanation.current.cost
    say()
    print_table(
        ("strategy", "cost", "against this", "delay ms", "probes", ""),
        [
            (
                alternative.strategy,
                _cost(explanation, alternative.cost),
                f"{alternative.cost / base - 1:+.1%}" if alternative.cost is not None and base else None,
                None if alternative.delay_ms is None else f"{alternative.delay_ms:.1f}",
                None if alternative.refused else alternative.probes,
                alternative.refused or alternative.breaks,
            )
            for alternative in sorted(
                explanation.strategies, key=lambda alternative: (alternative.cost is None, alternative.cost or 0.0)
            )
        ],
    )


def _show_profiles(explanation: PlacementExplanation) -> None:
    """Show the profiles of the strategies; a line is for all that share it."""
    known = [alternative for alternative in explanation.strategies if alternative.knows]
    if not known:
        return
    say()
    print_table(
        ("strategy", "knows", "sends before it has placed"),
        [(", ".join(names), *words) for words, names in _sharing(known, "knows", "sends").items()],
    )
    for title, field in (("--adapt", "adapts"), ("if a node dies meanwhile", "lost")):
        for (words,), names in _sharing(known, field).items():
            say(f"[dim]{title}[/] {escape(words)}: {', '.join(names)}")


def _sharing(alternatives: Sequence[Alternative], *fields: str) -> dict[tuple[str, ...], list[str]]:
    """Return the names of the strategies by these fields, which several may share."""
    sharing: dict[tuple[str, ...], list[str]] = {}
    for alternative in alternatives:
        sharing.setdefault(tuple(getattr(alternative, field) for field in fields), []).append(alternative.strategy)
    return sharing


def _show_checks(checks: tuple[BoundCheck, ...]) -> None:
    say()
    print_table(
        ("bound", "at", "allowed", "takes", "left"),
        [
            (
                check.bound,
                check.where,
                _amount(check.bound, check.limit) or "?",
                _amount(check.bound, check.value),
                "?" if check.limit is None else _amount(check.bound, check.slack),
            )
            for check in checks
        ],
        empty="no bounds",
    )


def _show_turns(explanation: PlacementExplanation) -> None:
    say()
    others = "1 other latency that is" if explanation.settled == 1 else f"{explanation.settled} other latencies that are"
    rest = f"{others} not measured lately would change nothing" if explanation.settled else ""
    if not explanation.turns:
        say(rest or "no measurement would change the choice: all relevant latencies were measured lately")
        return
    print_table(
        ("pair", "ms", "known by", "the best changes", "to"),
        [row for turn in explanation.turns[:SHOWN] for row in _turn_rows(turn)],
    )
    if rest:
        say(f"[dim]{rest}[/]")


def _turn_rows(turn: TurningPoint) -> list[tuple[str, str, str, str, str]]:
    ms = "?" if turn.latency_ms is None else f"{turn.latency_ms:.1f}"
    head = (f"{turn.a} - {turn.b}", ms, _known(turn.known, turn.age_s))
    both = (("below", turn.below_ms, turn.moves_below), ("above", turn.above_ms, turn.moves_above))
    return [
        (*head, f"{side} {limit:.1f} ms", ", ".join(f"{operator} to {node}" for operator, node in moves.items()))
        for side, limit, moves in both
        if limit is not None
    ]


def _moved(before: dict[str, str], after: dict[str, str]) -> str:
    return ", ".join(f"{operator} at {node}" for operator, node in after.items() if before.get(operator) != node)


def _figures(explanation: PlacementExplanation, alternative: Alternative) -> str:
    usage = "" if explanation.objective == "usage" else f", {bytes_text(alternative.usage or 0.0)} of network usage"
    breaks = f", [bold red]{escape(alternative.breaks)}[/]" if alternative.breaks else ""
    return f"{_cost(explanation, alternative.cost)}{usage}, delay {alternative.delay_ms or 0.0:.1f} ms{breaks}"


def _cost(explanation: PlacementExplanation, cost: float | None) -> str | None:
    """Return a cost in the unit of the objective, if it has one."""
    if cost is None:
        return None
    if explanation.objective in ("delay", "latency"):
        return f"{cost:.1f} ms"
    if explanation.objective == "bandwidth":
        return f"{bytes_text(cost)}/s"
    return bytes_text(cost) if explanation.objective == "usage" else cell_text(float(cost))


def _amount(bound: str, value: float | None) -> str | None:
    if value is None:
        return None
    if bound == "bandwidth_bytes_s":
        return f"{bytes_text(value)}/s"
    return f"{value:,.1f} ms" if bound == "max_delay_ms" else f"{value:,.2f}"


def _known(known: str, age_s: float | None) -> str:
    return known if age_s is None else f"{known}, {age_s:.0f} s ago"


# -- A query and the candidates of its operators, drawn in the cost space ---------------------------------------------


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
