"""The README's first tour, typed line by line as it stands there: real nodes, real Spark, one's own file."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.docs.test_commands import ROOT, lines

pytestmark = pytest.mark.live

TOUR = re.search(r"## Your own data\n(.*?)\n\nOn real sites", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
LARGE = "SELECT symbol, price * size AS value FROM read_csv('trades.csv') WHERE size > 100"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with (tmp_path / "trades.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["ts", "symbol", "price", "size"])
        for second in range(600):
            out.writerow([f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z", "ABC"[second % 3], second / 8, second * 7 % 300])
    return tmp_path


def test_the_tour_works_as_it_is_printed(folder: Path) -> None:
    assert TOUR is not None
    typed = list(lines(TOUR[1]))
    assert typed[0] == ". .venv/bin/activate"
    assert typed[-1] == "sbon cluster down"
    script = ["set -e", f"trap '{typed[-1]}' EXIT"]
    for number, line in enumerate(typed[1:-1]):
        if line.startswith("sbon cluster up"):
            script.append(f"{line} > up.json 2> up.txt")
        elif line.startswith("export SBON_API="):
            script.append('eval "$(tail -n 1 up.txt)"')
        else:
            script.append(f"{line} > {number}.txt")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (submitted,) = [number for number, line in enumerate(typed[1:-1]) if line.startswith("sbon submit") and "--to" not in line]
    rows = sorted(
        (row["symbol"], row["value"]) for row in map(json.loads, (folder / f"{submitted}.txt").read_text().splitlines())
    )
    database = duckdb.connect(config={"file_search_path": str(folder)})
    assert rows == sorted(database.sql(LARGE).fetchall())
    assert database.sql("SELECT count(*) FROM 'all.parquet/*.parquet'").fetchall() == [(600,)]
