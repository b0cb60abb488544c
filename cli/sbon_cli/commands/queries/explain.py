"""``sbon explain``: a query's plan as a tree with estimated and measured rates, and its placement."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import Any

import click
from rich.markup import escape

from sbon.model import ExplainedComponent, Explanation, QuerySpec
from sbon_cli.client import Client
from sbon_cli.commands.queries.explain_placement import QUERY_NAME, placement
from sbon_cli.commands.queries.query_flags import query_options
from sbon_cli.options.names import QUERY
from sbon_cli.terminal.output import asks_node, bytes_text, cell_text, out, print_table, rows_text, say, tell
from sbon_cli.terminal.reading import text_of
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


explain.add_command(placement)


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
    print_table(
        ("stream", "to", "ms", "plan /s", "meas. /s", "usage"),
        [
            (
                _short(link.stream),
                link.target_node,
                "?" if link.latency_ms is None else cell_text(link.latency_ms),
                bytes_text(link.bytes_s),
                "-" if link.measured_bytes_s is None else bytes_text(link.measured_bytes_s),
                "?" if link.usage is None else bytes_text(link.usage),
            )
            for link in explanation.links
        ],
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


def tree(components: dict[str, ExplainedComponent], root: str, width: int) -> list[str]:
    """A line for each component, under its readers, with its numbers to the right. A component with two readers is shown once."""
    columns = 6 * FIGURE
    label = max(LEAST_LABEL, width - 1 - columns)
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
        if component.late:
            lines.append(f"{below}{rows_text(component.late)} late")
        for position, read in enumerate(component.reads):
            last = position == len(component.reads) - 1
            add(read, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))

    add(root, "", "")
    return lines


def _with_figures(text: str, below: str, component: ExplainedComponent, label: int) -> list[str]:
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


def _state(component: ExplainedComponent) -> str:
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
