"""Progress of slow work, on stderr and on a terminal only, removed once it is over."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 1.0
"""Seconds below which work is not shown."""


told = False
"""Whether progress is shown. The command line sets it, so that library users of its client see none."""


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show ``what`` and the elapsed time, once the block lasts longer than :data:`PATIENCE_S`."""
    if not told or not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    shown = threading.Thread(target=_show, args=(what, over), daemon=True, name="waiting")
    shown.start()
    try:
        yield
    finally:
        over.set()
        shown.join()


def _show(what: str, over: threading.Event) -> None:
    if over.wait(PATIENCE_S):
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr, soft_wrap=True, highlight=False)
    with Progress(
        SpinnerColumn(), TextColumn("[dim]{task.description}[/]"), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        progress.add_task(what)
        over.wait()
