"""``sbon explain``: a query's plan as a tree with estimated and measured rates, and its placement with the alternatives."""

import re
import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from sbon import SbonError, model
from sbon.model import Explanation, PlacementExplanation, QuerySpec
from sbon_cli.client import Client
from sbon_cli.commands.nodes.map import check_suffix, label, write_figure
from sbon_cli.commands.queries.query_flags import query_options
from sbon_cli.options.names import QUERY
from sbon_cli.options.types import out_option
from sbon_cli.terminal.output import (
    asks_node,
    bytes_text,
    cell_text,
    err,
    out,
    print_json,
    print_records,
    print_table,
    rows_text,
    say,
    tell,
)
from sbon_cli.terminal.reading import text_of
from sbon_node.base.extras import matplotlib_figure
from sbon_node.overlay.space.projection import principal_axes
from sbon_node.placement.model.from_plan import CONSUMER
from sbon_protocol.api.query_ids import name_of

FIGURE = 7
"""Width of a number in characters, with the space before it."""
LEAST_LABEL = 24
WINDOWS = "meas.: recent rows/s; mean bytes/row, selectivity and usage since the start"


class Explained(click.Group):
    """Group whose default command is ``plan``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        has_name = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if has_name else ["plan", *args])


@click.group(cls=Explained)
def explain() -> None:
    """Explains a query that is not submitted, or one that is; changes nothing.

    sbon explain SQL shows its plan, as sbon explain plan SQL does; sbon explain placement SQL why operators go where they go.
    In place of SQL, both take the name of a query, whose plan has its measurements; --query NAME is the same for a plan.
    """


@explain.command()
@click.argument("sql", metavar="[SQL|@FILE|-|QUERY]", default="")
@click.option("--query", "query_id", default="", type=QUERY, help="A query of the cluster instead of SQL, with its measurements.")
@query_options("decompose", "join_window_ms", "on_error", "state_provider", "begin", "reuse")
@asks_node
def plan(api: str, sql: str, query_id: str, fields: dict[str, Any], json_: bool) -> None:
    """Shows the plan of a query that is not submitted, or of one that is; changes nothing.

    From the sink down to the sources: where each operator is, or where the strategy would have it now, its rows a second, row
    size and selectivity, what every link carries, and the network usage (rate x latency) of all that, against sending
    all rows to the consumer.

    SQL is the query, @FILE a file that holds it, - standard input; QUERY is the name of a query of the cluster.
    """
    if bool(sql) == bool(query_id):
        raise click.UsageError("explain what? give either SQL, @FILE or -, or the name of a query")
    if QUERY_NAME.fullmatch(sql):
        sql, query_id = "", sql
    client = Client(api)
    explanation = client.explain_query(query_id) if query_id else client.explain(QuerySpec(sql=text_of(sql), **fields))
    tell(explanation, json_, show_explanation)


def show_explanation(explanation: Explanation) -> None:
    """Show the explanation in the width of the terminal."""
    width = out().width
    components = {component.id: component for component in explanation.components}
    title = f"[bold]{escape(explanation.query)}[/] {explanation.state}" if explanation.query else "not submitted"
    reason = f" ({explanation.reason})" if explanation.reason else ""
    say(f"{title}{escape(reason)}; by {explanation.strategy}, rows to {escape(explanation.consumer)}")
    say(f"[dim]{escape(explanation.sql.strip())}[/]\n")
    for line in tree(components, explanation.components[0].id, width):
        say(escape(line))
    if explanation.query:
        say(f"[dim]{WINDOWS}[/]")
    say()
    operators = sorted(
        (component for component in explanation.components if component.kind == "operator"),
        key=lambda component: component.fragment,
    )
    for fragment, same in groupby(operators, key=lambda component: component.fragment):
        for component in same:
            say(f"[bold]{escape(component.id)}[/] at {escape(component.node)}, {escape(_state(component))}")
            if component.queries:
                say(f"  shared by {escape(', '.join(sorted(map(name_of, component.queries))))}")
            if component.state_mb is not None:
                say(f"  keeps about {bytes_text(component.state_mb * 2**20)} of state in {component.state_provider}")
        for line in textwrap.wrap(fragment, width - 3, break_on_hyphens=False):
            say(f"  [dim]{escape(line)}[/]")
    say()
    print_records(
        (
            {
                "stream": _short(link.stream),
                "to": link.target_node,
                "ms": "?" if link.latency_ms is None else cell_text(link.latency_ms),
                "plan /s": bytes_text(link.bytes_s),
                "meas. /s": "-" if link.measured_bytes_s is None else bytes_text(link.measured_bytes_s),
                "usage": "?" if link.usage is None else bytes_text(link.usage),
            }
            for link in explanation.links
        ),
        empty="no links",
    )
    say()
    if explanation.median_ratio is not None and explanation.worst_ratio is not None:
        runs = "" if explanation.query else " in earlier runs"
        off = f"{explanation.median_ratio:.3g} times (median), {explanation.worst_ratio:.3g} at most"
        say(f"estimates of operators{runs}: off {off}")
    say(_total("predicted", explanation.usage, explanation.baseline_usage))
    if any(component.queries for component in explanation.components):
        say(f"sharing operators saves {bytes_text(explanation.saved_usage)} of network usage (bytes/s x latency)")
    if explanation.measured_usage is not None and explanation.measured_baseline_usage is not None:
        say(_total("measured", explanation.measured_usage, explanation.measured_baseline_usage))


def tree(components: dict[str, model.ExplainedComponent], root: str, width: int) -> list[str]:
    """A line for each component, under its readers, with its numbers to the right. A component with two readers is shown once."""
    label = max(LEAST_LABEL, width - 1 - 6 * FIGURE)
    lines = [
        " " * label + "".join(f"{title:>{2 * FIGURE}}" for title in ("rows/s", "bytes/row", "selectivity")),
        " " * label + "".join(f"{title:>{FIGURE}}" for title in ("est.", "meas.") * 3),
    ]
    shown: set[str] = set()

    def add(name: str, branch: str, below: str) -> None:
        component = components[name]
        text = f"{branch}{_short(name).removesuffix(f'/{component.node}')} at {component.node}"
        if name in shown:
            lines.append(f"{text} (above)")
            return
        shown.add(name)
        lines.extend(_with_figures(text, below, component, label))
        if component.result_of:
            lines.append(f"{below}the result of {component.result_of}")
        if component.assumed:
            lines.append(f"{below}its rate is not known, but assumed")
        if component.late:
            lines.append(f"{below}{rows_text(component.late)} late")
        for position, read in enumerate(component.reads):
            last = position == len(component.reads) - 1
            add(read, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))

    add(root, "", "")
    return lines


def _with_figures(text: str, below: str, component: model.ExplainedComponent, label: int) -> list[str]:
    """Return the line; the numbers of a long label are on the next line."""
    if component.kind == "sink":
        return [text]
    pairs = zip(
        (component.estimated.rows_s, component.estimated.row_bytes, component.estimated.selectivity),
        (component.measured.rows_s, component.measured.row_bytes, component.measured.selectivity),
        strict=True,
    )
    figures = "".join(f"{figure_text(figure):>{FIGURE}}" for pair in pairs for figure in pair)
    if len(text) >= label:
        return [text, f"{below:<{label}}{figures}"]
    return [f"{text:<{label}}{figures}"]


def figure_text(value: float | None) -> str:
    """Return three digits within six characters: ``0.333``, ``12.3``, ``1.2k``; a dash for None."""
    if value is None:
        return "-"
    if value == 0 or 0.001 <= value < 999.5:
        return f"{value:#.3g}".rstrip(".") if value else "0"
    if value < 0.001:
        return f"{value:.0e}"
    for unit in "kMGTP":
        value /= 1000
        if value < 999.5:
            return f"{value:#.3g}".rstrip(".") + unit
    return f"{value * 1e15:.0e}"


def _short(name: str) -> str:
    """Return a source without the versions of its declarations: ``flights/jfk``."""
    stream, at, rest = name.removeprefix("source/").partition("@")
    return f"{stream}/{rest.partition('/')[2]}" if at and name.startswith("source/") else name


def _state(component: model.ExplainedComponent) -> str:
    return (
        component.state
        + (f": {component.reason}" if component.reason else "")
        + (", by earlier measurements" if component.remembered else "")
        + (f", estimated rows {component.ratio:.3g} times the measured" if component.ratio is not None else "")
    )


def _total(how: str, usage: float | None, baseline: float | None) -> str:
    if usage is None or baseline is None:
        return f"network usage, {how}: ?; the latency of some links is not known"
    share = f", [bold]{usage / baseline:.1%}[/]" if baseline else ""
    return f"network usage, {how}: {bytes_text(usage)}; all rows to the consumer: {bytes_text(baseline)}{share}"


# -- The hosts of a query's operators, the alternatives, and what decides ---------------------------------------------


QUERY_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""A single word is the name of a query: no SQL is a single word."""
SHOWN = 8
"""Most candidates of an operator, and most turning points, on a terminal; JSON has all."""


@explain.command()
@click.argument("what", type=QUERY, metavar="SQL|@FILE|-|QUERY")
@query_options("adapt", "decompose", "join_window_ms", "on_error")
@out_option("file", "Draw query and candidates in the cost space: .png, .svg or .pdf.")
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


def _show_operator(explanation: PlacementExplanation, operator: model.WeighedOperator) -> None:
    moves = f", now {escape(operator.now)}" if explanation.query and operator.now not in ("", operator.node) else ""
    say(f"\n[bold]{escape(operator.id)}[/] at {escape(operator.node or 'nowhere')}{moves}")
    if operator.reason:
        say(f"[dim]{escape(operator.reason)}[/]")
    shown = [candidate for i, candidate in enumerate(operator.candidates) if i < SHOWN or candidate.node == operator.node]
    loaded = any(candidate.load_ms for candidate in shown)
    print_records(
        (
            {
                "candidate": candidate.node,
                "ms off": candidate.distance_ms,
                **({"load ms": candidate.load_ms} if loaded else {}),
                "predicted": _cost(explanation, candidate.predicted),
                "measured": _cost(explanation, candidate.measured),
                "cores free": None if candidate.free is None else f"{candidate.free.cores:.2f}",
                "why not": candidate.lost or "chosen",
            }
            for candidate in shown
        ),
        empty="no candidates",
    )
    if len(shown) < len(operator.candidates):
        say(f"[dim]and {len(operator.candidates) - len(shown)} more, with --json[/]")


def _show_strategies(explanation: PlacementExplanation) -> None:
    base = explanation.current.cost
    say()
    print_records(
        {
            "strategy": alternative.strategy,
            "cost": _cost(explanation, alternative.cost),
            "against this": f"{alternative.cost / base - 1:+.1%}" if alternative.cost is not None and base else None,
            "delay ms": None if alternative.delay_ms is None else f"{alternative.delay_ms:.1f}",
            "probes": None if alternative.refused else alternative.probes,
            "": alternative.refused or alternative.breaks,
        }
        for alternative in sorted(
            explanation.strategies, key=lambda alternative: (alternative.cost is None, alternative.cost or 0.0)
        )
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


def _sharing(alternatives: Sequence[model.Alternative], *fields: str) -> dict[tuple[str, ...], list[str]]:
    """Return the names of the strategies by these fields, which several may share."""
    sharing: dict[tuple[str, ...], list[str]] = {}
    for alternative in alternatives:
        sharing.setdefault(tuple(getattr(alternative, field) for field in fields), []).append(alternative.strategy)
    return sharing


def _show_checks(checks: tuple[model.BoundCheck, ...]) -> None:
    say()
    print_records(
        (
            {
                "bound": check.bound,
                "at": check.where,
                "allowed": _amount(check.bound, check.limit) or "?",
                "takes": _amount(check.bound, check.value),
                "left": "?" if check.limit is None else _amount(check.bound, check.slack),
            }
            for check in checks
        ),
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


def _turn_rows(turn: model.TurningPoint) -> list[tuple[str, str, str, str, str]]:
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


def _figures(explanation: PlacementExplanation, alternative: model.Alternative) -> str:
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
