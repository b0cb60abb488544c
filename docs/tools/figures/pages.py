"""Pages of docs/figures from their templates, ``docs/figures/*.md.in``, and the results.

A template is Markdown with two additions. A block ```` ```table ```` becomes a table (:mod:`tables`), with the commands of its
results before it and their files after it. ``<<NAME key=value ...: cell>>`` becomes a cell of the row that has these values.
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

from results import FOLDER, FiguresError, Result, names, read
from tables import cell, fits, table

PAGES = "docs/figures"
WIDTH = 128
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$\n?", re.DOTALL | re.MULTILINE)
VALUE = re.compile(r"<<([\w-]+)((?:\s+[\w-]+=[^\s:>]+)*):\s*(.*?)>>", re.DOTALL)


def templates(root: Path) -> list[Path]:
    return sorted((root / PAGES).glob("*.md.in"))


def documents(root: Path) -> dict[Path, str]:
    """Return the text of every page. Raise :class:`FiguresError`, also for a result that no page shows."""
    found, used = {}, set[str]()
    for template in templates(root):
        page = Page(root, template)
        found[template.with_suffix("")] = page.text()
        used |= page.used
    if unused := sorted(set(names(root)) - used):
        raise FiguresError(f"no page shows {', '.join(f'{FOLDER}/{name}.json' for name in unused)}")
    return found


class Page:
    """A page, and the names of the results it shows."""

    def __init__(self, root: Path, template: Path) -> None:
        self.used: set[str] = set()
        self._root, self._template = root, template
        self._commands: set[str] = set()

    def text(self) -> str:
        source = self._template.read_text(encoding="utf-8")
        parts, at = [f"<!-- Made by `make figures` from {self._template.name}: change that, not this. -->\n\n"], 0
        try:
            for block in BLOCK.finditer(source):
                parts.append(self._prose(source[at : block.start()]))
                parts.append(self._table(block[2]) if block[1] == "table" else block[0])
                at = block.end()
            parts.append(self._prose(source[at:]))
        except (FiguresError, KeyError, ValueError) as error:
            raise FiguresError(f"{PAGES}/{self._template.name}: {error}") from error
        return re.sub(r"\n{3,}", "\n\n", "".join(parts)).rstrip("\n") + "\n"

    def _table(self, declaration: str) -> str:
        results, lines = table(self._root, declaration)
        self.used |= {result.name for result in results}
        return "\n".join([*self._shown(results), *lines, "", _filled(_origin(results)), ""])

    def _shown(self, results: list[Result]) -> list[str]:
        """Each command once on a page."""
        new = [line for result in results for line in result.commands if line not in self._commands]
        self._commands.update(new)
        if not new:
            return []
        return ["```console", *(line for command in dict.fromkeys(new) for line in _prompted(command)), "```", ""]

    def _prose(self, text: str) -> str:
        if re.search(r"^\|", text, re.MULTILINE):
            raise FiguresError("a table is written by hand; declare it in a block ```table with its result")
        return "\n\n".join(self._paragraph(one) for one in text.split("\n\n"))

    def _paragraph(self, text: str) -> str:
        filled = VALUE.sub(self._value, text)
        if re.match(r"\s*(#|\d+\. )", filled) or not filled.strip():
            return filled
        before, after = re.match(r"\n*", filled), re.search(r"\n*$", filled)
        assert before
        assert after
        items = re.split(r"\n(?=- )", filled.strip("\n"))
        return before[0] + "\n".join(_filled(" ".join(item.split())) for item in items) + after[0]

    def _value(self, found: re.Match[str]) -> str:
        result = read(self._root, found[1])
        self.used.add(result.name)
        where = {key: _read(value) for key, value in (one.split("=", 1) for one in found[2].split())}
        text = cell(found[3], [row for row in result.rows if fits(row, where)], {})
        if not text:
            raise FiguresError(f"{FOLDER}/{result.name}.json has no row for {found[0]}")
        return text


def _filled(text: str) -> str:
    return "\n".join(_lines(text, WIDTH, "  " if text.startswith("- ") else ""))


def _lines(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _read(value: str) -> object:
    try:
        found: object = json.loads(value)
        return found
    except ValueError:
        return value


def _origin(results: list[Result]) -> str:
    return "Measured: " + "; ".join(f"[{one.name}](../results/{one.name}.json), {one.origin()}" for one in results) + "."


def _prompted(command: str) -> list[str]:
    """A line for a console, continued where it is long."""
    return ("$ " + " \\\n      ".join(_lines(command, WIDTH - 8))).split("\n")
