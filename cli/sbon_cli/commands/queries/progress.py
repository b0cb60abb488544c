"""A query's progress: a line for people, and a bar on a terminal while it is followed."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from sbon import SbonError
from sbon.model import QueryInfo, QueryProgress
from sbon.states import LIVE
from sbon_cli.client import Client
from sbon_cli.terminal.output import err, rows_text, span_text

EVERY_S = 1.0
"""Seconds between requests for the record of a followed query, and before the first."""
PATIENCE_S = 10.0
"""Longest wait for an answer, in seconds."""
LET_GO_S = 0.5
"""Time limit of the last request."""
BAR_WIDTH = 10
"""Width of the bar: the text beside it fits a terminal of 80 columns."""
LINE_EVERY_S = 30.0
"""Seconds between lines, without a terminal for a bar."""


def progress_text(progress: QueryProgress) -> str:
    """Return ``45 % of the sources read, 1,204 rows in, 310 rows out, 120 rows/s in, lag 2.1 s, about 40 s left``."""
    texts = [_read(progress), f"{rows_text(progress.rows_in)} in", f"{rows_text(progress.rows_out)} out"]
    texts += [
        f"{rate:,.0f} rows/s {direction}"
        for rate, direction in ((progress.rows_in_s, "in"), (progress.rows_out_s, "out"))
        if rate is not None
    ]
    if progress.lag_ms is not None:
        texts.append(f"lag {span_text(progress.lag_ms / 1000)}")
    if progress.left_s is not None:
        texts.append(f"about {span_text(progress.left_s)} left")
    return ", ".join(texts)


def short_text(progress: QueryProgress) -> str:
    """Return the text beside a bar: ``45 %, 40 s left, 1,204 rows in, 310 out, 120 rows/s in, lag 2.1 s``."""
    share = "" if progress.read_share is None else f"{100 * progress.read_share:.0f} %"
    texts = [share or ("no end" if progress.endless else "")]
    texts.append("" if progress.left_s is None else f"{span_text(progress.left_s)} left")
    texts += [f"{rows_text(progress.rows_in)} in", "" if progress.rows_out is None else f"{progress.rows_out:,} out"]
    texts.append("" if progress.rows_in_s is None else f"{progress.rows_in_s:,.0f} rows/s in")
    texts.append("" if progress.lag_ms is None else f"lag {span_text(progress.lag_ms / 1000)}")
    return ", ".join(text for text in texts if text)


def _read(progress: QueryProgress) -> str:
    if progress.read_share is not None:
        return f"{100 * progress.read_share:.0f} % of the sources read"
    return f"no end: {', '.join(progress.endless)}" if progress.endless else "share of the sources read: unknown"


class Bar:
    """A bar that appears with the first report; lines may be printed on ``console`` meanwhile."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._shown: Progress | None = None
        self._closed = False
        self._task: TaskID | None = None

    def show(self, progress: QueryProgress) -> None:
        """Show the share if the sources have an end, else a bar without a share."""
        if self._closed:
            return
        if self._shown is None:
            columns = SpinnerColumn(), BarColumn(BAR_WIDTH), TextColumn("[dim]{task.description}[/]")
            self._shown = Progress(*columns, console=self.console, transient=True, redirect_stdout=False)
            self._task = self._shown.add_task("", total=None)
            self._shown.start()
        assert self._task is not None
        share = progress.read_share
        self._shown.update(
            self._task, description=escape(short_text(progress)), total=None if share is None else 1.0, completed=share or 0.0
        )
        self._shown.refresh()

    def close(self) -> None:
        self._closed = True
        if self._shown is not None:
            self._shown.stop()


@contextmanager
def watched(client: Client, info: QueryInfo, *, quiet: bool = False, rows_above: bool = True) -> Iterator[Console | None]:
    """Show a bar while the block lasts; without a terminal on stderr, a line now and then.

    Yields where rows are to be printed, None for standard output itself. Rows that go to the same terminal are printed above the
    bar; where they cannot be (``rows_above``), there is none.
    """
    rows_there = sys.stdout.isatty()
    if quiet or (rows_there and not rows_above):
        yield None
        return
    over = threading.Event()
    if not sys.stderr.isatty():
        with _asking(client, info.id, _Lines(info.id).show, over):
            yield None
        return
    console = Console(file=sys.stdout if rows_there else sys.stderr, highlight=False)
    bar = Bar(console)
    try:
        with _asking(client, info.id, bar.show, over):
            yield console if rows_there else None
    finally:
        bar.close()


class _Lines:
    """Print a line on stderr every :data:`LINE_EVERY_S`."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._printed_s = time.monotonic()

    def show(self, progress: QueryProgress) -> None:
        if time.monotonic() - self._printed_s >= LINE_EVERY_S:
            self._printed_s = time.monotonic()
            err().print(f"[dim]{escape(self._query)}: {escape(progress_text(progress))}[/]")


@contextmanager
def _asking(client: Client, query: str, show: Callable[[QueryProgress], None], over: threading.Event) -> Iterator[None]:
    """Ask for progress in a separate thread; ask again if the node does not answer."""
    patient = Client(client.api, patience_s=PATIENCE_S)

    def ask() -> None:
        while not over.wait(EVERY_S):
            try:
                info = patient.query(query)
            except SbonError:
                continue
            if info.state in LIVE and info.progress is not None and not over.is_set():
                show(info.progress)

    thread = threading.Thread(target=ask, daemon=True, name=f"progress {query}")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(LET_GO_S)
