"""Dead letters for people: a JSON object per line with line number, reason and text.

The source writes this file before its position, which stores the file's length. The next start cuts off letters beyond that
length and writes them again, so a kill neither loses nor repeats a letter. If the file is moved or shortened, it begins anew.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from sbon_node.base.disk import named_errors
from sbon_node.connectors.interface import BadRow


def trim(folder: Path, most: int) -> list[Path]:
    """Delete the least recently written dead-letter files until ``most`` bytes remain; return them.

    Files of operators that have not ended, which a file beside them marks, stay. The writer of a deleted file begins it anew.
    """
    files = [(path, path.stat()) for path in folder.glob("*.ndjson")] if folder.is_dir() else []
    size, gone = sum(status.st_size for _, status in files), []
    for path, status in sorted(files, key=lambda file: (file[1].st_mtime_ns, file[0].name)):
        if size <= most:
            break
        if not path.with_suffix(".at").exists():
            path.unlink(missing_ok=True)
            size -= status.st_size
            gone.append(path)
    return gone


class DeadLetters:
    """The dead-letter file of a source, of at most ``max_bytes``; further letters are dropped."""

    def __init__(self, folder: Path, source: str, *, max_bytes: int, max_text: int) -> None:
        self.path = folder / (quote(source.replace("/", "."), safe="@") + ".ndjson")
        self.length = 0
        self._max_bytes = max_bytes
        self._max_text = max_text

    def open(self, length: int) -> None:
        """Cut the file off after ``length`` bytes. Raises :class:`SbonError` ``disk-full``, ``disk-error``."""
        with named_errors(self.path):
            length_now = self.path.stat().st_size if self.path.exists() else 0
            if length_now > length:
                os.truncate(self.path, length)
            self.length = min(length_now, length)

    def write(self, bad: Sequence[BadRow]) -> None:
        """Append bad rows; after an error the same rows may be written again."""
        self.write_lines([{"line": row.line, "reason": row.reason, "text": row.text[: self._max_text]} for row in bad])

    def write_lines(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Append JSON objects, as :meth:`write` does."""
        letters, size = [], self.length
        for line in lines:
            letter = msgspec.json.encode(line) + b"\n"
            if size + len(letter) <= self._max_bytes:
                letters.append(letter)
                size += len(letter)
        if letters:
            with named_errors(self.path):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with open(self.path, "ab") as file:
                    # Somebody may have moved the file meanwhile, and a failed write may have left part of a line.
                    at = min(file.tell(), self.length)
                    file.truncate(at)
                    file.write(b"".join(letters))
            self.length = at + size - self.length
