"""Log files that stay within a size limit while one or several processes write them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec


def cut(path: Path, max_bytes: int) -> None:
    """Move the content of a file over the limit to ``<path>.1``, in place of earlier content.

    It copies, because writers keep the file open; they must have opened it for appending. On a full disk the moved content is
    lost, but the limit holds.
    """
    if not path.exists() or path.stat().st_size <= max_bytes:
        return
    aside = path.with_name(f"{path.name}.1")
    try:
        shutil.copyfile(path, aside)
    except OSError:
        aside.unlink(missing_ok=True)
    os.truncate(path, 0)


class LogFile:
    """The part of a text stream that loggers use: appends to a file and cuts it.

    It counts the lines that a full disk rejects, and reports them once writing works again. Raises ``OSError`` if the file
    cannot be opened.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes, self._lost = path, max_bytes, 0
        self._file = path.open("ab", buffering=0)

    def write(self, text: str) -> int:
        note = msgspec.json.encode({"event": "log-lines-lost", "pieces": self._lost}).decode() + "\n" if self._lost else ""
        try:
            self._file.write((note + text).encode("utf-8", "replace"))
            self._lost = 0
        except OSError:
            self._lost += 1
        return len(text)

    def flush(self) -> None:
        if os.fstat(self._file.fileno()).st_size > self._max_bytes:
            cut(self._path, self._max_bytes)

    def isatty(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()
