"""Contents of the documents: blocks of code, typed commands, and commands within sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "protocol" / "SPEC.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
]


class Block(NamedTuple):
    document: str
    language: str
    text: str


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def blocks() -> Iterator[Block]:
    """All fenced ones."""
    for document in DOCUMENTS:
        for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", text_of(document), re.DOTALL | re.MULTILINE):
            yield Block(document.name, language, text)


def typed(console: str) -> Iterator[str]:
    """Yield the commands of a console: after a prompt ``$`` or ``#``, without the machine's name before it, with what is
    continued on further lines and what goes to its standard input after ``>``. Comments are left out.

    Raises :class:`ValueError` for a line that belongs to no command.
    """
    command: list[str] = []
    for line in re.sub(r"\\\n\s*", " ", console).splitlines():
        if prompt := re.match(r"(?:[a-z-]+)?[$#] +(.*)", line):
            yield from ["\n".join(command)] if command else []
            command = [re.sub(r"\s+#.*", "", prompt[1])]
        elif command and line.startswith("> ") and "<< END" in command[0]:
            command.append(line[2:])
        elif not (command and command[0] == "sbon sql" and re.match(r"(sbon| +-)> ", line)):
            raise ValueError(f"nobody types or reads {line!r}")
    yield from ["\n".join(command)] if command else []


def mentioned(text: str) -> Iterator[str]:
    """``sbon`` with words after it, in sentences and tables; alternatives are yielded one by one."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for found in re.findall(r"`(sbon [^`]*)`", outside):
        words = " ".join(found.split())
        several = re.search(r"[\w-]+(?:\\\|[\w-]+)+", words)
        for one in several[0].split("\\|") if several else [""]:
            yield words.replace(several[0], one) if several else words
