"""``sbon explain placement``: the hosts of a query's operators, the alternatives, and what decides."""

from __future__ import annotations

import re
from pathlib import Path

import click
from rich.markup import escape

from sbon.model import Alternative, BoundCheck, PlacementExplanation, QuerySpec, TurningPoint, WeighedOperator
from sbon_cli.client import Client
from sbon_cli.commands.nodes.map import check_suffix
from sbon_cli.commands.nodes.settings_flags import decompose_option, join_window_option, on_error_option
from sbon_cli.commands.queries.goal_flags import goal_options
from sbon_cli.commands.queries.placement_picture import save
from sbon_cli.options.names import NODE, QUERY
from sbon_cli.terminal.output import bytes_text, cell_text, err, json_option, print_json, print_table, reports_errors, say
from sbon_cli.terminal.reading import text_of
from sbon_node.model.goal import Goal
from sbon_node.model.operators import OnError
from sbon_node.model.plan import Decompose
from sbon_node.placement.model.from_plan import CONSUMER

QUERY_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""A single word is the name of a query: no SQL is a single word."""
SHOWN = 8
"""Most candidates of an operator, and most turning points, on a terminal; JSON has all."""


@click.command()
@click.argument("what", type=QUERY, metavar="SQL|@FILE|-|QUERY")
@goal_options
@decompose_option
@join_window_option
@on_error_option
@click.option("--consumer", default="", type=NODE, help="The consumer's node; by default the node asked.")
@click.option(
    "--out",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw query and candidates in the cost space: .png, .svg or .pdf.",
)
@json_option
@click.pass_obj
@reports_errors
def placement(
    api: str,
    what: str,
    goal: Goal,
    decompose: Decompose,
    join_window_ms: int | None,
    on_error: OnError,
    consumer: str,
    file: Path | None,
    json_: bool,
) -> None:
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
        found = client.explain_query_placement(what)
    else:
        question = QuerySpec(
            **goal.goal_options(),
            sql=text_of(what),
            decompose=decompose,
            join_window_ms=join_window_ms,
            on_error=on_error,
            consumer=consumer,
        )
        found = client.explain_placement(question)
    if file is not None:
        save(found, file)
        err().print(f"written: {escape(str(file))}")
    if json_:
        print_json(found)
    elif file is None:
        show_placement(found)


def show_placement(found: PlacementExplanation) -> None:
    """Show the explanation in the width of the terminal."""
    what = f"[bold]{escape(found.query)}[/] {found.state}" if found.query else "not submitted"
    taken = f" (now {found.now.strategy})" if found.now.strategy != found.strategy else ""
    say(f"{what}; by {found.strategy}{taken}, for {escape(found.objective)}, rows to {escape(found.consumer)}")
    say(f"[dim]{escape(found.sql.strip())}[/]")
    if found.now_reason:
        say(escape(found.now_reason))
    if found.now.refused:
        say(f"[bold red]refused[/] {escape(found.now.refused)}")
    for line in _away(found):
        say(f"[bold red]{escape(line)}[/]")
    if found.query:
        say("[dim]by the planned rates; for the measured ones: sbon explain --query " + f"{found.query}[/]")
    say()
    for line in _tree(found):
        say(line)
    say()
    if not found.current.refused:
        say(f"it costs {_figures(found, found.current)}")
    lost_ends = [vertex for vertex, node in found.pinned.items() if node in found.away]
    if found.query and lost_ends:
        say(f"it cannot be placed again as long as {escape(', '.join(lost_ends))} cannot be reached")
    elif found.query and found.now.hosts and found.now.hosts != found.current.hosts:
        say(f"now it would be {_moved(found.current.hosts, found.now.hosts)}: {_figures(found, found.now)}")
    elif found.query and found.now.hosts:
        say("now it would be placed the same")
    if found.best.hosts and found.best.hosts != found.current.hosts and not lost_ends:
        say(f"best of the candidates: {_moved(found.current.hosts, found.best.hosts)}: {_figures(found, found.best)}")
    for operator in found.operators:
        _show_operator(found, operator)
    _show_strategies(found)
    _show_checks(found.checks)
    _show_turns(found)


def _away(found: PlacementExplanation) -> list[str]:
    """Return the nodes that cannot be asked, and the query's components there."""
    at = {**found.pinned, **{one.id: one.node for one in found.operators}}
    there = {node: ", ".join(vertex for vertex in at if at[vertex] == node) for node in found.away}
    return [f"{node} {how}: {there[node]}; its last known latencies count" for node, how in found.away.items()]


def _tree(found: PlacementExplanation) -> list[str]:
    """Return a line for each component, from the sink to the sources; a component with two readers has its inputs once."""
    at = {**found.pinned, **{one.id: one.node for one in found.operators}}
    distance_ms = {(one.id, c.node): c.distance_ms for one in found.operators for c in one.candidates}
    lines: list[str] = []
    drawn: set[str] = set()

    def add(vertex: str, flow: str, branch: str, below: str) -> None:
        node = at[vertex] or "nowhere"
        near_ms = distance_ms.get((vertex, node))
        near = "" if near_ms is None else f", {near_ms:.1f} ms from the best point for it"
        again = " (above)" if vertex in drawn else ""
        gone = f" [red]({escape(found.away[node])})[/]" if node in found.away else ""
        lines.append(f"{branch}[bold]{escape(vertex)}[/] at {escape(node)}{gone}{near}{flow}{again}")
        links = [] if again else [link for link in found.links if link.target == vertex]
        drawn.add(vertex)
        for position, link in enumerate(links):
            last = position == len(links) - 1
            ms = "?" if link.latency_ms is None else f"{link.latency_ms:.1f}"
            flow = f" [dim]{bytes_text(link.rate_bytes_s)}/s over {ms} ms ({_known(link.known, link.age_s)})[/]"
            add(link.source, flow, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))

    add(CONSUMER, "", "", "")
    return lines


def _show_operator(found: PlacementExplanation, operator: WeighedOperator) -> None:
    moves = f", now {escape(operator.now)}" if found.query and operator.now not in ("", operator.node) else ""
    say(f"\n[bold]{escape(operator.id)}[/] at {escape(operator.node or 'nowhere')}{moves}")
    if operator.reason:
        say(f"[dim]{escape(operator.reason)}[/]")
    listed = [one for i, one in enumerate(operator.candidates) if i < SHOWN or one.node == operator.node]
    print_table(
        ("candidate", "ms off", "predicted", "measured", "cores free", "why not"),
        [
            (
                one.node,
                one.distance_ms,
                _cost(found, one.predicted),
                _cost(found, one.measured),
                None if one.free is None else f"{one.free.cores:.2f}",
                one.lost or "chosen",
            )
            for one in listed
        ],
        empty="no candidates",
    )
    if len(listed) < len(operator.candidates):
        say(f"[dim]and {len(operator.candidates) - len(listed)} more, with --json[/]")


def _show_strategies(found: PlacementExplanation) -> None:
    base = found.current.cost
    say()
    print_table(
        ("strategy", "cost", "against this", "delay ms", "probes", ""),
        [
            (
                one.strategy,
                _cost(found, one.cost),
                f"{one.cost / base - 1:+.1%}" if one.cost is not None and base else None,
                None if one.delay_ms is None else f"{one.delay_ms:.1f}",
                None if one.refused else one.probes,
                one.refused or one.breaks,
            )
            for one in sorted(found.strategies, key=lambda one: (one.cost is None, one.cost or 0.0))
        ],
    )


def _show_checks(checks: tuple[BoundCheck, ...]) -> None:
    say()
    print_table(
        ("bound", "at", "allowed", "takes", "left"),
        [
            (
                one.bound,
                one.where,
                _amount(one.bound, one.limit) or "?",
                _amount(one.bound, one.value),
                "?" if one.limit is None else _amount(one.bound, one.slack),
            )
            for one in checks
        ],
        empty="no bounds",
    )


def _show_turns(found: PlacementExplanation) -> None:
    say()
    others = "1 other latency that is" if found.settled == 1 else f"{found.settled} other latencies that are"
    rest = f"{others} not measured lately would change nothing" if found.settled else ""
    if not found.turns:
        say(rest or "no measurement would change the choice: all relevant latencies were measured lately")
        return
    print_table(
        ("pair", "ms", "known by", "the best changes", "to"),
        [row for turn in found.turns[:SHOWN] for row in _turn_rows(turn)],
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


def _figures(found: PlacementExplanation, one: Alternative) -> str:
    usage = "" if found.objective == "usage" else f", {bytes_text(one.usage or 0.0)} of network usage"
    breaks = f", [bold red]{escape(one.breaks)}[/]" if one.breaks else ""
    return f"{_cost(found, one.cost)}{usage}, delay {one.delay_ms or 0.0:.1f} ms{breaks}"


def _cost(found: PlacementExplanation, cost: float | None) -> str | None:
    """Return a cost in the unit of the objective, if it has one."""
    if cost is None:
        return None
    if found.objective in ("delay", "latency"):
        return f"{cost:.1f} ms"
    if found.objective == "bandwidth":
        return f"{bytes_text(cost)}/s"
    return bytes_text(cost) if found.objective == "usage" else cell_text(float(cost))


def _amount(bound: str, value: float | None) -> str | None:
    if value is None:
        return None
    if bound == "bandwidth_bytes_s":
        return f"{bytes_text(value)}/s"
    return f"{value:,.1f} ms" if bound == "max_delay_ms" else f"{value:,.2f}"


def _known(known: str, age_s: float | None) -> str:
    return known if age_s is None else f"{known}, {age_s:.0f} s ago"
