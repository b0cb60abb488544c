"""Output of rows as they arrive: aligned lines for people, NDJSON for programs."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape

from sbon import SbonError, endpoints, states
from sbon.model import FOLLOW, QueryInfo, Rows
from sbon_cli.client import Client
from sbon_cli.commands.queries.follow import STOP_S, Follower, row_line, skipped, unread
from sbon_cli.commands.queries.progress import watched
from sbon_cli.terminal.interrupts import leave_on_signals
from sbon_cli.terminal.output import EXIT_INTERRUPTED, EXIT_REFUSED, Output, cell_text, err, out, plain, rows_output, rows_text

MAX_WIDTH = 40


class LineWriter:
    """Writer of aligned columns, as wide as the first frame needs, on ``console`` or else on stdout."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console
        self._widths: list[int] = []
        self.rows = 0

    def __call__(self, frame: Rows) -> None:
        cells = [[_cell(value) for value in row] for row in frame.rows]
        if not cells:
            return
        console = self.console or out()
        if not self._widths:
            self._widths = [
                min(MAX_WIDTH, max(cell_len(name), *(cell_len(row[position]) for row in cells)))
                * (-1 if _number(frame, position) else 1)
                for position, name in enumerate(frame.columns)
            ]
            console.print(f"[bold]{escape(self._line(list(frame.columns)))}[/]", soft_wrap=True)
        for row in cells:
            console.print(escape(self._line(row)), soft_wrap=True)
            self.rows += 1
        console.file.flush()

    def _line(self, cells: list[str]) -> str:
        """Return the aligned line; a negative width aligns numbers to the right."""
        aligned = []
        for cell, width in zip(cells, self._widths, strict=True):
            room = " " * (abs(width) - cell_len(cell))
            aligned.append(room + cell if width < 0 else cell + room)
        return "  ".join(aligned).rstrip()


def _number(frame: Rows, position: int) -> bool:
    return all(row[position] is None or isinstance(row[position], int | float) for row in frame.rows)


class NdjsonWriter:
    """Writer of a line of JSON for each row, on stdout."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, frame: Rows) -> None:
        for row in frame.rows:
            sys.stdout.buffer.write(row_line(frame, row) + b"\n")
            self.rows += 1
        sys.stdout.flush()


def _cell(value: object) -> str:
    """Return numbers with twelve digits, and texts with control characters escaped as in Python."""
    if isinstance(value, float):
        return f"{value:.12g}"
    text = str(value) if isinstance(value, int) else cell_text(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class TextWriter:
    """Writer of a line for each row, on stdout: values between tabs, no headings, nothing for NULL."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, frame: Rows) -> None:
        for row in frame.rows:
            print("\t".join(plain(value) for value in row))
            self.rows += 1
        sys.stdout.flush()


Writer = LineWriter | NdjsonWriter | TextWriter


def writer(json_: bool) -> Writer:
    forms: dict[Output, Callable[[], Writer]] = {"json": NdjsonWriter, "text": TextWriter, "table": LineWriter}
    return forms[rows_output(json_)]()


class Tie:
    """A query that ends with this command, if ``stops``: its id once that is known, and whether the node has accepted it."""

    def __init__(self, client: Client, query: str, *, stops: bool) -> None:
        self._client, self.query, self.accepted, self.stops = client, query, bool(query), stops

    def stop(self, rows: int | None = None) -> None:
        """Stop the query, if there is one, and report it with its ``rows``; try once, for :data:`.follow.STOP_S` at most.

        A node gives up a submission whose connection ends, or has just accepted it: an unknown query may be no error.
        """
        query, self.query = self.query, ""
        if not query:
            return
        left = f"{query} may still run; to stop it: sbon query stop {query}"
        try:
            stopped = self._client.ask(endpoints.stop(query)._replace(within_s=STOP_S))
            notice(f"stopped {stopped.id}" + ("" if rows is None else f" after {rows_text(rows)}"))
        except SbonError as error:
            given_up = error.code == "unknown-query" and not self.accepted
            is_late = isinstance(error.__cause__, httpx.ReadTimeout)
            reason = f"no answer within {STOP_S:g} s" if is_late else error.message
            notice(f"{query} does not stay" if given_up else f"cannot stop {query}: {reason}; {left}")
        except (KeyboardInterrupt, SystemExit):
            notice(left)
            raise


@contextmanager
def tied(client: Client, query: str = "", *, stops: bool) -> Iterator[Tie]:
    """Stop the query if the block is left by an error, Ctrl-C, SIGTERM or SIGHUP; without ``stops`` it keeps running, as a
    line says after an error.

    The block begins before the submission, which tells the tie its query: no moment is left in which a signal ends the command
    alone.
    """
    tie = Tie(client, query, stops=stops)
    if stops:
        leave_on_signals()
    try:
        yield tie
    except BaseException as error:
        if stops:
            tie.stop()
        elif tie.accepted and isinstance(error, SbonError):
            notice(f"{tie.query} may still run: sbon query show {tie.query}")
        raise


def follow_to_the_end(client: Client, info: QueryInfo, tie: Tie, *, json_: bool, quiet: bool = False, sink: str = "") -> int:
    """Print the query's rows until it ends, and its progress unless ``quiet``; return the exit code.

    Ctrl-C detaches and leaves the query running, or stops it as the ``tie`` says. Rows that have arrived are printed first, so
    that the next follower begins after them; a second Ctrl-C does not wait for that.
    """
    write = writer(json_)
    follower = Follower(client, info.id, write, notice, sink=sink)
    try:
        with watched(client, info, quiet=quiet, rows_above=isinstance(write, LineWriter)) as console:
            if isinstance(write, LineWriter):
                write.console = console
            end = follower.run()
    except KeyboardInterrupt:
        if tie.stops:
            tie.stop(write.rows)
        else:
            notice(f"detached after {rows_text(write.rows)}; {info.id} keeps running: sbon query follow {info.id}")
        return EXIT_INTERRUPTED
    record = _recorded(client, info.id)
    for line in [*unread(record), *skipped(record)] if record is not None else ():
        notice(line)
    if end.state == states.FAILED:
        err().print(f"[bold red]error[/]: {escape(info.id)} failed: {escape(end.reason)}")
        return EXIT_REFUSED
    if info.sink.kind == FOLLOW or write.rows:
        notice(f"{info.id} {end.state}: {rows_text(write.rows)}")
    else:
        delivered = rows_text(record.rows) if record is not None else "its rows"
        notice(f"{info.id} {end.state}: {delivered} delivered to {info.sink.kind}")
    return 0


def _recorded(client: Client, query: str) -> QueryInfo | None:
    """Return the query's record at its end, for the number of unreadable or delivered rows. None if no node answers any more;
    that does not change the outcome.
    """
    try:
        return client.query(query)
    except SbonError:
        return None


def notice(text: str) -> None:
    err().print(f"[dim]{escape(text)}[/]")
