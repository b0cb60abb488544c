"""Writes docs/errors.md: python docs/tools/errors. A test holds the file to this, and the table of codes to the source."""

from __future__ import annotations

from pathlib import Path

from document import FILE, document

ROOT = Path(__file__).parents[3]

if __name__ == "__main__":
    (ROOT / FILE).write_text(document(ROOT), encoding="utf-8")
