"""Results of measurements: a JSON file each in docs/results, with date, commit, command and rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = "docs/results"

Row = dict[str, Any]


class FiguresError(Exception):
    """A page or a result is wrong: what, and in which file."""


class Result(NamedTuple):
    """``commit`` is None where it is unknown; ``note`` says then what is known."""

    name: str
    date: str | None
    commit: str | None
    commands: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""

    def origin(self) -> str:
        """Date and commit in words."""
        when = self.date or "date unknown"
        return f"{when}, commit {self.commit}" if self.commit else f"{when}, before results were kept"


def read(root: Path, name: str) -> Result:
    """Raise :class:`FiguresError` for a result that is missing or incomplete."""
    path = root / FOLDER / f"{name}.json"
    if not path.is_file():
        raise FiguresError(f"there is no result {FOLDER}/{name}.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    missing = [key for key in ("date", "commit", "command", "rows") if key not in content]
    if missing:
        raise FiguresError(f"{FOLDER}/{name}.json has no {', '.join(missing)}")
    if content["commit"] is None and not content.get("note"):
        raise FiguresError(f"{FOLDER}/{name}.json has neither a commit nor a note why")
    if not content["rows"]:
        raise FiguresError(f"{FOLDER}/{name}.json has no rows")
    command = content["command"]
    commands = (command,) if isinstance(command, str) else tuple(command)
    return Result(name, content["date"], content["commit"], commands, tuple(content["rows"]), content.get("note", ""))


def names(root: Path) -> list[str]:
    return sorted(path.stem for path in (root / FOLDER).glob("*.json"))


def write(root: Path, result: Result) -> Path:
    """Write a row on a line each, so that a change of a figure is a change of a line."""
    head: dict[str, Any] = {"date": result.date, "commit": result.commit}
    if result.note:
        head["note"] = result.note
    head["command"] = result.commands[0] if len(result.commands) == 1 else list(result.commands)
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}," for key, value in head.items()]
    rows = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in result.rows)
    path = root / FOLDER / f"{result.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["{", *lines, '  "rows": [', rows, "  ]", "}"]) + "\n", encoding="utf-8")
    return path
