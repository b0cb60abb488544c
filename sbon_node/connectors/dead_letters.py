"""Rows nobody could read, kept for people: one JSON object a line, with line number, reason and text.

The file is written before the source's position, and the position says how long it was: what was written after it is cut off at
the next start and written again, so that a kill neither loses nor repeats a letter. A file that somebody has moved away or
shortened is begun anew.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from sbon_node.connectors.interface import BadRow
from sbon_node.disk import named_errors


class DeadLetters:
    """The dead-letter file of one source, of at most ``max_bytes``; what goes beyond is not kept."""

    def __init__(self, folder: Path, source: str, *, max_bytes: int, max_text: int) -> None:
        self.path = folder / (quote(source.replace("/", "."), safe="@") + ".ndjson")
        self.length = 0
        self._max_bytes = max_bytes
        self._max_text = max_text

    def open(self, length: int) -> None:
        """Cuts off what is after ``length`` bytes. Raises :class:`SbonError` ``disk-full``, ``disk-error``."""
        with named_errors(self.path):
            found = self.path.stat().st_size if self.path.exists() else 0
            if found > length:
                os.truncate(self.path, length)
            self.length = min(found, length)

    def write(self, bad: Sequence[BadRow]) -> None:
        """Appends; after an error the same may be written again."""
        kept, size = [], self.length
        for row in bad:
            letter = msgspec.json.encode({"line": row.line, "reason": row.reason, "text": row.text[: self._max_text]}) + b"\n"
            if size + len(letter) <= self._max_bytes:
                kept.append(letter)
                size += len(letter)
        if kept:
            with named_errors(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with open(self.path, "ab") as file:
                    # Somebody may have taken the file away meanwhile, and a failed write may have left a part of one.
                    at = min(file.tell(), self.length)
                    file.truncate(at)
                    file.write(b"".join(kept))
            self.length = at + size - self.length
