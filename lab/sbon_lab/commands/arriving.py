"""Rows of a benchmark as they come: each is a line on stderr, and an interrupted run shows those that it has."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from sbon_cli.terminal.output import cell_text, err, print_json, print_table

Row = dict[str, Any]


class Arriving:
    """The ``rows`` so far. A row replaces an earlier one with the same values in the columns ``key``, if there are any."""

    def __init__(self, console: Console, status: Status, key: Sequence[str]) -> None:
        self._console, self._status, self._key = console, status, key
        self.rows: list[Row] = []

    def notify(self, text: str) -> None:
        """Show what is being measured."""
        self._status.update(escape(text))

    def found(self, row: Mapping[str, Any]) -> None:
        """Print a row, and keep it."""
        self.rows = [one for one in self.rows if not self._key or any(one[name] != row[name] for name in self._key)]
        self.rows.append(dict(row))
        values = " ".join(f"{name}={cell_text(value)}" for name, value in row.items() if value is not None)
        self._console.print(f"[dim]{escape(values)}[/]")

    def take(self, rows: Generator[Row, None, None]) -> None:
        """Print and keep all of them."""
        with closing(rows) as coming:
            for row in coming:
                self.found(row)


@contextmanager
def arriving(begins: str, show: Callable[[list[Row]], object], key: Sequence[str] = ()) -> Iterator[Arriving]:
    """Yield the rows of a benchmark; if the block is left by an error, Ctrl-C or a signal, ``show`` those that have come."""
    console = err()
    with console.status(begins) as status:
        rows = Arriving(console, status, key)
        try:
            yield rows
        except BaseException:
            status.stop()
            if rows.rows:
                show(rows.rows)
            raise


def show_rows(name: str, rows: Sequence[Row], *, json_: bool, columns: Sequence[str] = ()) -> None:
    """Print flat rows as JSON, or as a table of these columns, by default of all."""
    if json_:
        print_json({"name": name, "rows": rows})
        return
    columns = columns or (list(rows[0]) if rows else [])
    print_table(columns, [[row.get(column) for column in columns] for row in rows], title=name)
