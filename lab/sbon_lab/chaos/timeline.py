"""The timeline of a run: faults and queries, each with its begin and its end."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

Subject = Literal["fault", "query", "node"]


@dataclass
class Entry:
    """Something that began at ``at_s`` and was over at ``until_s``; ``struck`` unless a fault found nothing to strike."""

    at_s: float
    subject: Subject
    name: str
    where: str = ""
    until_s: float | None = None
    outcome: str = ""
    struck: bool = True

    def line(self) -> str:
        """Return what a person reads: ``  12.3 s  fault  kill             london: back after 4.1 s``."""
        lasted = "" if self.until_s is None else f" after {self.until_s - self.at_s:.1f} s"
        text = ": ".join(part for part in (self.where, self.outcome) if part)
        return f"{self.until_s or self.at_s:7.1f} s  {self.subject:<5}  {self.name:<24}  {text}{lasted}"


class Timeline:
    """Entries in the order of their begin, since the creation; each is shown at its begin and at its end."""

    def __init__(self, show: Callable[[str], None] = lambda line: None) -> None:
        self.entries: list[Entry] = []
        self._began_s, self._show, self._lock = time.monotonic(), show, threading.Lock()

    def now_s(self) -> float:
        return time.monotonic() - self._began_s

    def begin(self, subject: Subject, name: str, where: str = "") -> Entry:
        entry = Entry(self.now_s(), subject, name, where)
        with self._lock:
            self.entries.append(entry)
        self._show(entry.line())
        return entry

    def end(self, entry: Entry, outcome: str) -> None:
        entry.until_s, entry.outcome = self.now_s(), outcome
        self._show(entry.line())

    def note(self, subject: Subject, name: str, where: str, outcome: str, *, struck: bool = True) -> None:
        """Add an entry without a length."""
        entry = Entry(self.now_s(), subject, name, where, outcome=outcome, struck=struck)
        with self._lock:
            self.entries.append(entry)
        self._show(entry.line())

    @contextmanager
    def during(self, name: str, where: str, outcome: str = "over") -> Iterator[Entry]:
        """Add an entry of a fault that lasts as long as the block."""
        entry = self.begin("fault", name, where)
        try:
            yield entry
        except BaseException as error:
            self.end(entry, f"{type(error).__name__}: {error}")
            raise
        self.end(entry, entry.outcome or outcome)

    def rows(self) -> list[dict[str, Any]]:
        with self._lock:
            return [asdict(entry) for entry in sorted(self.entries, key=lambda one: one.at_s)]
