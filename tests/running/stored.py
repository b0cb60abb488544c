"""The stored run: what each file and each slow test took when ``make record`` was last called, in ``docs/results/tests.json``.

It has one row for the run, one for each file, and one for each test of at least ``LEAST_S`` seconds.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "results" / "tests.json"
LEAST_S = 1.0


def folder_of(test: str) -> str:
    """Return the folder of tests to which a test or a file belongs; ``.`` for those beside the folders."""
    parts = Path(test.split("::")[0]).parts[1:-1]
    return parts[0] if parts else "."


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Seconds of workers by file and by slow test; the wall time of the calibration and of the run. Empty if none is stored."""

    date: str = ""
    commit: str = ""
    calibration_s: float = 0.0
    minutes: float = 0.0
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
    rows = content["rows"]
    (run,) = (row for row in rows if "run" in row)
    return StoredRun(
        date=content["date"],
        commit=content["commit"],
        calibration_s=run["calibration_s"],
        minutes=run["minutes"],
        files={row["file"]: row["seconds"] for row in rows if "file" in row},
        tests={row["test"]: row["set_up_s"] + row["call_s"] + row["tear_down_s"] for row in rows if "test" in row},
    )


def write(run: Mapping[str, Any], tests: Iterable[Mapping[str, Any]], path: Path = STORED) -> None:
    """Write a run's row and those of its files and slow tests; ``tests`` are rows as :mod:`tests.running.recorder` makes them."""
    tests = list(tests)
    files: dict[str, dict[str, Any]] = {}
    for test in tests:
        name = test["test"].split("::")[0]
        row = files.setdefault(
            name, {"file": name, "tests": 0, "seconds": 0.0, "cpu_s": 0.0, "waited_s": 0.0, "starts": Counter()}
        )
        row["tests"] += 1
        row["seconds"] += _seconds(test)
        row["cpu_s"] += test["cpu_s"]
        row["waited_s"] += test["waited_s"]
        row["starts"].update(test["starts"])
    slow = sorted((test for test in tests if _seconds(test) >= LEAST_S), key=_seconds, reverse=True)
    ordered = sorted(files.values(), key=lambda row: -float(row["seconds"]))
    starts = sum((row["starts"] for row in ordered), Counter())
    rows = [{**run, "starts": starts}, *ordered, *slow]
    content = {"date": datetime.now(UTC).date().isoformat(), "commit": _commit(), "command": "make record"}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in content.items()]
    body = ",\n".join(f"    {json.dumps(_plain(row), ensure_ascii=False)}" for row in rows)
    path.write_text("\n".join(["{", *lines, '  "rows": [', body, "  ]", "}"]) + "\n", encoding="utf-8")


def _seconds(test: Mapping[str, Any]) -> float:
    return float(test["set_up_s"] + test["call_s"] + test["tear_down_s"])


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with seconds to the tenth and the started processes in words, the most frequent first."""
    plain = {
        name: round(value, 1) if isinstance(value, float) and name != "calibration_s" else value for name, value in row.items()
    }
    plain["starts"] = ", ".join(f"{count} {start}" for start, count in Counter(row["starts"]).most_common())
    return plain


def _commit() -> str | None:
    head = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return None if head.returncode else head.stdout.strip()
