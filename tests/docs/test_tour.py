"""The README's tour, typed line by line as it stands there: real nodes, real Spark; a CSV file, a log that grows, posts."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from tests.connectors.servers import program
from tests.docs.reading import ROOT, text_of, typed

pytestmark = pytest.mark.live

TOUR = re.search(r"## Five minutes with your own data\n(.*?)\n## ", text_of(ROOT / "README.md"), re.DOTALL)
PATIENCE_S = 300.0
LARGE = "SELECT symbol, price * size AS value FROM read_csv('trades.csv') WHERE size > 100"
GROWN = {
    "errors.csv": [("10.0.0.9", "503"), ("10.0.0.5", "500")],
    "pages.csv": [("2026-03-02 09:00:00.000000Z", "/", "2")],
}
"""Contents, below their headers, of the files that the tour shows some seconds later."""
PARTS = ("", "A CSV file", "A log that grows", "Posts over HTTP")
"""Headings; the first part brings up the cluster."""
SHOWN_BY = {"errors.csv": PARTS[2], "pages.csv": PARTS[3]}
COMPILED_ONCE = "-XX:TieredStopAtLevel=1"
"""As with ``engine.jit = "c1"``: the engines of the tour live for a minute."""


class Shell:
    """Bash in a folder, which is given one command after another and keeps what these set."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._number = folder, 0
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "JAVA_TOOL_OPTIONS": COMPILED_ONCE}
        self._bash = subprocess.Popen(["bash"], cwd=folder, env=environment, stdin=subprocess.PIPE, text=True)

    def type(self, command: str) -> tuple[str, str]:
        """Standard output and error of a command that succeeds."""
        self._number += 1
        out, err, code = (self.folder / f"{self._number}.{suffix}" for suffix in ("out", "err", "code"))
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{{ {command}\n}} > {out} 2> {err}; echo $? > {code}.part; mv {code}.part {code}\n")
        self._bash.stdin.flush()
        until(code.exists, command)
        assert int(code.read_text()) == 0, f"{command}: {err.read_text()}"
        return out.read_text(), err.read_text()

    def close(self) -> None:
        self._bash.communicate(timeout=PATIENCE_S)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def rows(file: Path) -> list[tuple[str, ...]]:
    with file.open(newline="") as text:
        return [tuple(row) for row in list(csv.reader(text))[1:]]


def lines_of(text: str) -> list[str]:
    """Return the commands of a text's consoles."""
    return [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in typed(block)]


def without_others(lines: list[str]) -> list[str]:
    """Leave out lines on queries that other parts of the tour submit."""
    named = {found[1] for line in lines if (found := re.search(r"--name (\w+)", line))}
    return [line for line in lines if not line.startswith("sbon query usage") or line.split()[3] in named]


def test_the_tour_has_these_parts() -> None:
    assert TOUR is not None
    assert re.findall(r"^### (.*)$", TOUR[1], re.MULTILINE) == [part for part in PARTS if part]


@pytest.mark.one_part_per_commit("parts of the tour", parts=12)
@pytest.mark.parametrize("part", [*PARTS[1:], pytest.param("", id="all", marks=pytest.mark.only_in_test_all("the whole tour"))])
def test_the_tour_works_as_it_is_printed(tmp_path: Path, part: str) -> None:
    assert TOUR is not None
    program("curl", ("/usr/bin",))
    lines = lines_of(TOUR[1])
    assert lines[0] == ". .venv/bin/activate"
    assert lines[-1] == "sbon cluster down"
    if part:
        first, *others = re.split(r"^### ", TOUR[1], flags=re.MULTILINE)
        (chosen,) = [other for other in others if other.startswith(f"{part}\n")]
        lines = [*without_others([*lines_of(first), *(line for line in lines_of(chosen) if line != lines[-1])]), lines[-1]]
    shell, said = Shell(tmp_path), dict[str, str]()
    up = ""
    try:
        for line in lines[1:-1]:
            if line.startswith("cat ") and "<<" not in line:
                file = line.split()[1]
                until(lambda file=file: rows(tmp_path / file) == GROWN[file], file)  # type: ignore[misc]
            if line.startswith("export SBON_API="):
                assert line.split("=")[0] == up.split("=")[0]
                shell.type(up)
            else:
                said[line], told = shell.type(line)
                up = told.splitlines()[-1] if line.startswith("sbon cluster up") else up
    finally:
        shell.type(lines[-1])
        shell.close()
    looked_at = {line.split()[1] for line in lines if line.startswith("cat ") and "<<" not in line}
    assert looked_at == {file for file, of in SHOWN_BY.items() if part in ("", of)}
    if part in ("", PARTS[1]):
        (submitted,) = [line for line in said if line.startswith("sbon submit") and "--to" not in line]
        found = sorted((row["symbol"], row["value"]) for row in map(json.loads, said[submitted].splitlines()))
        database = duckdb.connect(config={"file_search_path": str(tmp_path)})
        assert found == sorted(database.sql(LARGE).fetchall())
        assert database.sql("SELECT count(*) FROM 'all.parquet/*.parquet'").fetchall() == [(3,)]
