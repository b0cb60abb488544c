"""The stored run: what each file and each slow test took when ``make record`` was last called, in ``docs/results/tests.json``.

It has one row for the run, one for each folder and each file, and one for each test of at least ``LEAST_S`` seconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.results import ROOT, store

STORED = ROOT / "docs" / "results" / "tests.json"
LEAST_S = 1.0
SECONDS = ("seconds", "set_up_s", "call_s", "tear_down_s", "cpu_s", "waited_s", "slept_s")


def folder_of(test: str) -> str:
    """Return the folder of tests to which a test or a file belongs; ``.`` for those beside the folders."""
    parts = Path(test.split("::")[0]).parts[1:-1]
    return parts[0] if parts else "."


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Seconds of workers by file and by slow test; and the wall time of the calibration. Empty if none is stored."""

    date: str = ""
    commit: str = ""
    calibration_s: float = 0.0
    files: Mapping[str, float] = field(default_factory=dict)
    tests: Mapping[str, float] = field(default_factory=dict)

    def folders(self) -> Counter[str]:
        seconds: Counter[str] = Counter()
        for file, took in self.files.items():
            seconds[folder_of(file)] += took  # type: ignore[assignment]  # a counter of seconds
        return seconds


def read(path: Path = STORED) -> StoredRun:
    if not path.is_file():
        return StoredRun()
    content = json.loads(path.read_text(encoding="utf-8"))
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for row in content["rows"]:
        rows.setdefault(row["row"], {})[row["name"]] = row
    (run,) = rows["run"].values()
    return StoredRun(
        date=content["date"],
        commit=content["commit"],
        calibration_s=run["calibration_s"],
        files={name: row["seconds"] for name, row in rows.get("file", {}).items()},
        tests={name: row["seconds"] for name, row in rows.get("test", {}).items()},
    )


def write(run: Mapping[str, Any], tests: Iterable[Mapping[str, Any]], root: Path = ROOT) -> Path:
    """Write the rows of a run, its folders, files and slow tests; ``tests`` as :mod:`tests.running.recorder` makes them."""
    tests = sorted(
        ({**test, "seconds": test["set_up_s"] + test["call_s"] + test["tear_down_s"]} for test in tests), key=_slowest_first
    )
    rows: list[Mapping[str, Any]] = [{"row": "run", **_sum("make test", tests), **run}]
    for row, part in (("folder", folder_of), ("file", _file_of)):
        parts: dict[str, list[Mapping[str, Any]]] = {}
        for test in tests:
            parts.setdefault(part(test["name"]), []).append(test)
        rows += sorted(({"row": row, **_sum(name, of)} for name, of in parts.items()), key=_slowest_first)
    rows += [{"row": "test", "rank": rank, **test} for rank, test in enumerate(tests, 1) if test["seconds"] >= LEAST_S]
    return store("tests", "make record", [_plain(row) for row in rows], root)


def _sum(name: str, tests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    starts = sum((test["starts"] for test in tests), Counter[str]())
    return {
        "name": name,
        "tests": len(tests),
        **{column: sum(test[column] for test in tests) for column in SECONDS},
        "starts": starts,
    }


def _slowest_first(row: Mapping[str, Any]) -> float:
    return -float(row["seconds"])


def _file_of(test: str) -> str:
    return test.split("::")[0]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with seconds to the tenth and the started processes in words, the most frequent first."""
    digits = {"calibration_s": 4}
    plain = {name: round(value, digits.get(name, 1)) if isinstance(value, float) else value for name, value in row.items()}
    plain["starts"] = ", ".join(f"{count} {start}" for start, count in Counter(row["starts"]).most_common())
    return plain
