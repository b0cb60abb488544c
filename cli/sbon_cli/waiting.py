"""Something that takes its time is told of, on stderr and on a terminal only, and no more once it is over."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 1.0
"""What takes less is not worth a word."""


told = False
"""Whether people are told; the command line sets it, so that those who use its client as a library are not."""


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Shows ``what``, and for how long already, while the block lasts longer than :data:`PATIENCE_S`."""
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
