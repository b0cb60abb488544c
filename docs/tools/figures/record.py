"""Runs a command that prints ``{"name", "rows"}`` as JSON, and keeps its rows as a result."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from results import FiguresError, Result, write


def record(root: Path, name: str, command: Sequence[str]) -> Path:
    """Return the written file. Raise :class:`FiguresError` if the command fails or prints no rows."""
    commit = commit_of(root)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    try:
        rows = json.loads(done.stdout)["rows"]
    except (ValueError, KeyError, TypeError):
        rows = []
    if done.returncode or not rows:
        raise FiguresError(f"{shlex.join(command)} ended with {done.returncode} and printed no rows; has it --json?")
    today = datetime.now(UTC).date().isoformat()
    return write(root, Result(name, today, commit, (shlex.join(command),), tuple(rows)))


def commit_of(root: Path) -> str:
    """The commit that is measured. Raise :class:`FiguresError` if files differ from it: their figures could not be repeated."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
        if done.returncode:
            raise FiguresError(f"git {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    if changed:
        raise FiguresError(f"commit these changes first, so that the result can name what it measured:\n{changed}")
    return git("rev-parse", "--short=10", "HEAD")
