"""Progress of slow work on stderr: on a terminal removed once the work is over, else a line for each slow step."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from sbon_cli.terminal.output import err

PATIENCE_S = 1.0
"""Seconds below which work is not shown on a terminal."""
SLOW_S = 2.0
"""Seconds after which work is printed in a pipe or a file."""

enabled = False
"""Whether progress is shown. The command line sets it, so that library users of its client see none."""


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Show ``what`` and the time after :data:`PATIENCE_S`, in a pipe a line after :data:`SLOW_S`; yield a printer above."""
    if not enabled or not sys.stderr.isatty():
        with slow_steps(_print_slow) as begin:
            if enabled:
                begin(what)
            yield err().print
        return
    console, ended = err(), threading.Event()
    shown = threading.Thread(target=_show, args=(console, what, ended), daemon=True, name="waiting")
    shown.start()
    try:
        yield console.print
    finally:
        ended.set()
        shown.join()


@contextmanager
def slow_steps(tell: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Yield a function that begins a step of this name; ``tell`` gets the names of steps that last :data:`SLOW_S`."""
    timer: threading.Timer | None = None

    def begin(step: str) -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
        timer = threading.Timer(SLOW_S, tell, (step,))
        timer.daemon = True
        timer.start()

    try:
        yield begin
    finally:
        if timer is not None:
            timer.cancel()


def _print_slow(step: str) -> None:
    print(f"waiting: {step}", file=sys.stderr, flush=True)


def _show(console: Console, what: str, ended: threading.Event) -> None:
    if ended.wait(PATIENCE_S):
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(), TextColumn("[dim]{task.description}[/]"), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        progress.add_task(what)
        ended.wait()
