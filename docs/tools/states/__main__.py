"""Writes docs/states.md: python docs/tools/states. A test compares the file with the lifecycles."""

from __future__ import annotations

from pathlib import Path

from states_document import FILE, document

ROOT = Path(__file__).parents[3]

if __name__ == "__main__":
    (ROOT / FILE).write_text(document(), encoding="utf-8")
