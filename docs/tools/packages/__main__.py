"""Writes the picture of the packages into docs/code.md: python docs/tools/packages. A test compares it with the imports."""

from __future__ import annotations

from packages_picture import FILE, ROOT, with_picture

if __name__ == "__main__":
    document = ROOT / FILE
    document.write_text(with_picture(document.read_text(encoding="utf-8")), encoding="utf-8")
