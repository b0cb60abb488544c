"""Keep rows as a result in ``docs/results``, as the recorder of figures does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def store(name: str, command: str, rows: Sequence[Mapping[str, Any]], root: Path = ROOT) -> Path:
    """Write the rows with today's date and the commit of the checkout, and return the file."""
    folder = str(ROOT / "docs" / "tools" / "figures")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    from results import Result, write

    head = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    today = datetime.now(UTC).date().isoformat()
    commit = None if head.returncode else head.stdout.strip()
    note = "" if commit else "outside a clone"
    return write(root, Result(name, today, commit, (command,), tuple(map(dict, rows)), note))


def stored_rows(name: str, root: Path = ROOT) -> list[dict[str, Any]]:
    """Return the rows that are stored under this name; none if there are none yet."""
    path = root / "docs" / "results" / f"{name}.json"
    return list(json.loads(path.read_text(encoding="utf-8"))["rows"]) if path.is_file() else []
