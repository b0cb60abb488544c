"""What a newcomer sees of the demo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.tree import Tree

from sbon_cli.cities import cities
from sbon_cli.local_cluster import LocalCluster
from sbon_cli.output import bytes_text
from sbon_cli.rows import LineWriter
from sbon_node.control import report
from sbon_node.control.report import Bill, QueryInfo, Rows

SHOWN_ROWS = 4
"""Of each branch."""


class Show:
    """Prints on ``console`` the demo whose rows arrive at ``consumer``."""

    def __init__(self, console: Console, consumer: str) -> None:
        self._console, self._consumer = console, consumer
        self._write = LineWriter(console)
        self._shown: Counter[str] = Counter()

    def line(self, text: str = "") -> None:
        self._console.print(text)

    def members(self, cluster: LocalCluster, airports: Mapping[str, str]) -> None:
        """The nodes; ``airports`` are those whose flights are born at a node, by its name."""
        own = cluster[self._consumer].client.status()
        self.line(f"[bold]{own.members} nodes[/] on loopback, as far apart as their cities:\n")
        table = _table("node", "address", _right(f"to {self._consumer} and back"), "part")
        area = cities()
        for node in cluster.nodes:
            rtt_ms = area.rtt_ms[area.names.index(node.name)][area.names.index(self._consumer)]
            part = "asks for rows" if node.name == self._consumer else ""
            if node.name in airports:
                part = f"flights from {airports[node.name]}"
            table.add_row(node.name, node.address, f"{rtt_ms:.0f} ms", part)
        self._console.print(table)
        self.line()

    @contextmanager
    def waiting(self, text: str) -> Iterator[Callable[[str], None]]:
        """A spinner on a terminal, with the time since it began and a text that the caller may change."""
        columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", table_column=Column(no_wrap=True)))
        with Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal) as progress:
            task = progress.add_task(text, total=None)
            yield lambda changed: progress.update(task, description=escape(changed))

    def step(self, passed_s: float, step: report.Progress) -> None:
        text = f"[dim]{passed_s:6.1f} s[/]  {escape(step.message)}"
        terminal = self._console.is_terminal
        self._console.print(text, no_wrap=terminal, overflow="ellipsis", soft_wrap=not terminal)

    def plan(self, info: QueryInfo) -> None:
        """Where each operator runs and why, from the consumer up to the sources."""
        assert info.plan is not None
        assert info.placement is not None
        self.line(f"\n[bold]The query[/]\n\n{escape(info.sql)}\n\n[bold]The plan[/], rows flow from the leaves to the root\n")
        tree = Tree(f"[bold]{self._consumer}[/]  the consumer")
        placed = {a.operator: a for a in info.placement.assignments}
        for operator in info.plan.operators:
            assignment = placed[operator.id]
            branch = tree.add(f"[bold]{assignment.node}[/]  {operator.id}: {escape(assignment.reason)}")
            for source in info.plan.sources:
                if any(one.stream == source.source.id for one in operator.inputs):
                    rate = f"{source.rate.rows_s:,.0f} rows/s expected"
                    branch.add(f"[bold]{source.source.node}[/]  {source.source.stream} from {source.source.name.upper()}, {rate}")
        self._console.print(tree)
        fragments = dict.fromkeys(operator.fragment for operator in info.plan.operators)
        for fragment in fragments:
            whose = "each operator runs" if len(fragments) == 1 else "an operator runs"
            self.line(f"\n[dim]{whose}: {escape(fragment)}[/]")

    def rows(self, frame: Rows) -> None:
        """The first of each branch."""
        first = frame.rows[: max(0, SHOWN_ROWS - self._shown[frame.stream])]
        if first and not self._shown:
            self.line(f"\n[bold]The rows[/], the first {SHOWN_ROWS} of each branch\n")
        if first:
            self._shown[frame.stream] += len(first)
            self._write(replace(frame, rows=first))

    def bill(self, bill: Bill) -> None:
        self.line("\n[bold]The bill[/]: bytes x one-way latency on each link\n")
        table = _table("stream", "from", "to", _right("bytes"), _right("ms"), _right("byte-seconds"))
        for line in bill.links:
            at, to = line.source_node, line.target_node
            table.add_row(line.stream, at, to, bytes_text(line.bytes), f"{line.latency_ms:.1f}", _byte_seconds(line.byte_ms))
        table.add_section()
        table.add_row("[bold]in all[/]", "", "", "", "", f"[bold]{_byte_seconds(bill.byte_ms)}[/]")
        shipped = bytes_text(sum(line.bytes for line in bill.whole))
        table.add_row("every stream whole", "", self._consumer, shipped, "", _byte_seconds(bill.whole_byte_ms))
        self._console.print(table)
        if bill.whole_byte_ms:
            self.line(
                f"\nthat is [bold]{bill.byte_ms / bill.whole_byte_ms:.1%}[/] of shipping every stream whole to {self._consumer}"
            )

    def verdict(self, rows: int, wrong: int) -> None:
        if wrong:
            self.line(f"\n[bold red]{wrong:,} rows differ[/] from DuckDB's answer on the same input ({rows:,} rows here)")
        else:
            self.line(f"\n[bold green]{rows:,} rows, each equal[/] to DuckDB's answer on the same input")

    def stopping(self, nodes: int) -> None:
        self.line(f"[dim]stopping the {nodes} nodes[/]")


def _table(*columns: str | Column) -> Table:
    return Table(*columns, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def _right(header: str) -> Column:
    return Column(header, justify="right")


def _byte_seconds(byte_ms: float) -> str:
    return f"{byte_ms / 1000:,.0f}"
