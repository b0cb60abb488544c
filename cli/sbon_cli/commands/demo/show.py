"""Output of the demo for new users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.tree import Tree

from sbon import model
from sbon.local.cluster import LocalCluster
from sbon.local.wide_area import cities
from sbon.model import QueryInfo, QueryUsage, Rows
from sbon_cli.commands.demo.queries import DemoQuery
from sbon_cli.commands.queries.rows import LineWriter
from sbon_cli.terminal.output import bytes_text
from sbon_node.model.catalogue import is_source

SHOWN_ROWS = 4
"""Number of rows shown for each branch."""


class Show:
    """Prints on ``console`` the demo whose rows arrive at ``consumer``."""

    def __init__(self, console: Console, consumer: str) -> None:
        self._console, self._consumer = console, consumer
        self._write = LineWriter(console)
        self._shown: Counter[str] = Counter()

    def line(self, text: str = "") -> None:
        self._console.print(text)

    def members(self, cluster: LocalCluster, airports: Mapping[str, str]) -> None:
        """Show the nodes; ``airports`` are those with flights from a node, by its name."""
        own = cluster[self._consumer].client.status()
        self.line(f"[bold]{own.members} nodes[/] on loopback, as far apart as their cities:\n")
        table = _table("node", "address", _right(f"to {self._consumer} and back"), "part")
        area = cities()
        for node in cluster.nodes:
            rtt_ms = area.rtt_ms[area.names.index(node.name)][area.names.index(self._consumer)]
            note = "asks for rows" if node.name == self._consumer else ""
            if node.name in airports:
                note = f"flights, weather of {airports[node.name]}"
            table.add_row(node.name, node.address, f"{rtt_ms:.0f} ms", note)
        self._console.print(table)
        self.line()

    @contextmanager
    def waiting(self, text: str) -> Iterator[Callable[[str], None]]:
        """A spinner on a terminal, with the time since it began and a text that the caller may change."""
        columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", table_column=Column(no_wrap=True)))
        with Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal) as progress:
            task = progress.add_task(text, total=None)
            yield lambda changed: progress.update(task, description=escape(changed))

    def step(self, passed_s: float, step: model.Progress) -> None:
        text = f"[dim]{passed_s:6.1f} s[/]  {escape(step.message)}"
        terminal = self._console.is_terminal
        self._console.print(text, no_wrap=True, overflow="ellipsis" if terminal else "ignore", crop=terminal)

    def query(self, query: DemoQuery, number: int, of: int) -> None:
        self._write, self._shown = LineWriter(self._console), Counter()
        self._console.rule(f"[bold]{number} of {of}", align="left")
        self.line(f"\n[bold]{escape(query.title)}[/]\n\n{escape(query.sql)}\n")

    def plan(self, info: QueryInfo) -> None:
        """Show each operator's node and the reason, from the consumer up to the sources."""
        assert info.plan is not None
        self.line("\n[bold]The plan[/], rows flow from the leaves to the root\n")
        tree = Tree(f"[bold]{self._consumer}[/]  the consumer")
        for stream in info.plan.outputs:
            self._grow(tree, stream, info)
        self._console.print(tree)
        of_fragment: dict[str, list[str]] = {}
        for operator in info.plan.operators:
            of_fragment.setdefault(operator.fragment, []).append(_short(operator.id))
        for fragment, operators in of_fragment.items():
            self.line(f"\n[dim]{', '.join(operators)}: {escape(fragment)}[/]")

    def _grow(self, above: Tree, stream: str, info: QueryInfo) -> None:
        """Add the source or operator of a stream, with its inputs."""
        assert info.plan is not None
        assert info.placement is not None
        for source in (placed_source for placed_source in info.plan.sources if placed_source.source.id == stream):
            rate = f"{source.rate.rows_s:,.0f} rows/s expected"
            above.add(f"[bold]{source.source.node}[/]  {source.source.stream} of {source.source.name.upper()}, {rate}")
        for operator in (placed_operator for placed_operator in info.plan.operators if placed_operator.id == stream):
            assignment = next(candidate for candidate in info.placement.assignments if candidate.operator == operator.id)
            branch = above.add(f"[bold]{assignment.node}[/]  {_short(operator.id)}: {escape(assignment.reason)}")
            for input_spec in operator.inputs:
                self._grow(branch, input_spec.stream, info)

    def rows(self, frame: Rows) -> None:
        """Show the first rows of each branch."""
        first = frame.rows[: max(0, SHOWN_ROWS - self._shown[frame.stream])]
        if first and not self._shown:
            self.line(f"\n[bold]The rows[/], the first {SHOWN_ROWS} of each branch\n")
        if first:
            self._shown[frame.stream] += len(first)
            self._write(replace(frame, rows=first))

    def query_usage(self, query_usage: QueryUsage) -> None:
        self.line("\n[bold]Network usage[/]: bytes x one-way latency on each link between nodes\n")
        table = _table("stream", "from", "to", _right("bytes"), _right("ms"), _right("byte-seconds"))
        local_links = [line for line in query_usage.links if line.source_node == line.target_node]
        for line in (link for link in query_usage.links if link not in local_links):
            latency = "?" if line.latency_ms is None else f"{line.latency_ms:.1f}"
            carried = bytes_text(line.bytes), latency, _byte_seconds(line.byte_ms)
            table.add_row(_short(line.stream), line.source_node, line.target_node, *carried)
        if local_links:
            table.add_row(
                f"{len(local_links)} within a node", "", "", bytes_text(sum(line.bytes for line in local_links)), "", "0"
            )
        table.add_section()
        table.add_row("[bold]in all[/]", "", "", "", "", f"[bold]{_byte_seconds(query_usage.byte_ms)}[/]")
        shipped = bytes_text(sum(line.bytes for line in query_usage.baseline))
        table.add_row("all rows to the consumer", "", self._consumer, shipped, "", _byte_seconds(query_usage.baseline_byte_ms))
        self._console.print(table)
        if query_usage.baseline_byte_ms:
            share = query_usage.byte_ms / query_usage.baseline_byte_ms
            self.line(f"\nthat is [bold]{share:.1%}[/] of sending all rows to {self._consumer}")

    def verdict(self, rows: int, wrong: int) -> None:
        if wrong:
            self.line(f"\n[bold red]{wrong:,} wrong rows[/] beside DuckDB's answer on the same input ({rows:,} rows here)\n")
        else:
            self.line(f"\n[bold green]{rows:,} rows, 0 wrong[/]: each equal to DuckDB's answer on the same input\n")

    def summary(self, results: Sequence[tuple[DemoQuery, int, int, QueryUsage]]) -> None:
        self._console.rule("[bold]In all", align="left")
        self.line()
        table = _table("query", *map(_right, ("rows", "wrong", "byte-seconds", "all rows sent", "share")))
        for query, rows, wrong, query_usage in results:
            share = f"{query_usage.byte_ms / query_usage.baseline_byte_ms:.1%}" if query_usage.baseline_byte_ms else ""
            usage, baseline = _byte_seconds(query_usage.byte_ms), _byte_seconds(query_usage.baseline_byte_ms)
            table.add_row(query.name, f"{rows:,}", str(wrong), usage, baseline, share)
        self._console.print(table)
        self.line()

    def stopping(self, nodes: int) -> None:
        self.line(f"[dim]stopping the {nodes} nodes[/]")


def _short(stream: str) -> str:
    """Return an operator without its query's name, or a source's stream and name."""
    if is_source(stream):
        name, _, source = stream.partition("/")[2].partition("/")
        return f"{name.partition('@')[0]} {source.upper()}"
    return stream.rpartition(".")[2]


def _table(*columns: str | Column) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def _right(header: str) -> Column:
    return Column(header, justify="right")


def _byte_seconds(byte_ms: float | None) -> str:
    return "?" if byte_ms is None else f"{byte_ms / 1000:,.0f}"
