"""The picture of the packages in docs/code.md, from the imports of the code."""

from __future__ import annotations

from pathlib import Path

import grimp

ROOT = Path(__file__).parents[3]
FILE = "docs/code.md"
BEGIN, END = "<!-- packages: made by `make packages` -->\n", "<!-- end of packages -->\n"
NODE = "sbon_node"
OTHERS = ("sbon_lab", "sbon_cli", "sbon", "sbon_protocol")
"""Packages that are one box each; each package and module of the node has a box of its own."""


def with_picture(document: str) -> str:
    """Return the document with the picture of today's imports between its two marks. Raises :class:`ValueError` without them."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{FILE} lacks the lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{picture(imports())}\n{END}{after}"


def imports() -> dict[str, set[str]]:
    """Return the packages that each package imports from directly."""
    graph = grimp.build_graph(NODE, *OTHERS)
    imported: dict[str, set[str]] = {_box(module): set() for module in graph.modules if module != NODE}
    for importer in sorted(graph.modules - {NODE}):
        named = graph.find_modules_directly_imported_by(importer) - {NODE}
        imported[_box(importer)] |= {_box(module) for module in named} - {_box(importer)}
    return imported


def _box(module: str) -> str:
    """Return a module's package: one of `OTHERS`, or the part of the node below its root."""
    top, *rest = module.split(".")
    return rest[0] if top == NODE else top


def picture(imported: dict[str, set[str]]) -> str:
    """Return a diagram in Mermaid, which Git hosts draw. Arrows that follow from others are left out."""
    lines = ["```mermaid", "flowchart TD"]
    for box in _importers_first(imported):
        implied = {lower for one in imported[box] for lower in _all_below(one, imported)}
        if direct := sorted(imported[box] - implied):
            lines.append(f"    {box} --> {' & '.join(direct)}")
    return "\n".join([*lines, "```", ""])


def _importers_first(imported: dict[str, set[str]]) -> list[str]:
    """Return the packages so that importers come before the packages they import, by name where that leaves a choice."""
    return sorted(imported, key=lambda box: (-len(_all_below(box, imported)), box))


def _all_below(box: str, imported: dict[str, set[str]]) -> set[str]:
    below: set[str] = set()
    waiting = [box]
    while waiting:
        new = imported[waiting.pop()] - below
        below |= new
        waiting += new
    return below
