"""Plant each bug of the catalogue in a copy of the tree, and check that ``make test`` fails: ``python -m tests.mutants``.

Prints a line for each mutant: ``caught``, ``missed`` (all of its tests passed) or ``broken`` (it does not fit the code, or ``make
test`` selects none of its tests). Exits with 1 if more than one in twenty is missed or any is broken.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.mutants.catalogue import ROOT, Mutant, load
from tests.mutants.planting import Verdict, plant
from tests.results import store, stored_rows

MISSED = 0.05
"""Share of the bugs that may be missed."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutants to plant, by the beginning of their names; default all")
    parser.add_argument("--list", action="store_true", help="list the mutants and plant none")
    parser.add_argument("--packages", action="store_true", help="list the packages by bugs for each 1,000 lines and plant none")
    parser.add_argument("--jobs", type=int, default=2, help="mutants planted side by side")
    parser.add_argument("--record", action="store_true", help="store the verdicts in docs/results/mutants.json")
    asked = parser.parse_args()
    mutants = [one for one in load() if not asked.names or one.name.startswith(tuple(asked.names))]
    if not mutants:
        parser.error("no mutant has such a name; --list lists them")
    if asked.list:
        for mutant in mutants:
            print(f"{mutant.name}: {mutant.why}")
        return 0
    if asked.packages:
        for row in packages(mutants):
            print("{package:32} {lines:7,} lines {bugs:4} bugs {bugs_per_1000_lines:6.2f} for 1,000 lines".format(**row))
        return 0
    verdicts = []
    for verdict in plant(mutants, asked.jobs):
        verdicts.append(verdict)
        print(
            f"{verdict.outcome:7} {verdict.mutant.name} ({verdict.seconds:.0f} s): {verdict.reason or verdict.mutant.why}",
            flush=True,
        )
    if asked.record:
        record(verdicts)
    count = Counter(verdict.outcome for verdict in verdicts)
    print(f"{count['caught']} of {len(mutants)} caught, {count['missed']} missed, {count['broken']} broken")
    return 1 if count["broken"] or count["missed"] > MISSED * len(mutants) else 0


def packages(mutants: Sequence[Mutant]) -> list[dict[str, Any]]:
    """Return lines and planted bugs of each package of the product."""
    lines, bugs = Counter[str](), Counter(_package(Path(mutant.file)) for mutant in mutants)
    for folder in ("sbon_node", "protocol", "cli", "lab"):
        for path in (ROOT / folder).rglob("*.py"):
            lines[_package(path.relative_to(ROOT))] += len(path.read_text(encoding="utf-8").splitlines())
    return [
        {"package": name, "lines": count, "bugs": bugs[name], "bugs_per_1000_lines": round(1000 * bugs[name] / count, 2)}
        for name, count in lines.most_common()
    ]


def _package(file: Path) -> str:
    return "/".join(file.parts[:2]) if len(file.parts) > 2 else file.parts[0]


def record(verdicts: Sequence[Verdict]) -> None:
    """Store a row for each package and one for each bug; stored rows of bugs that were not planted now stay."""
    mutants = {one.name: one for one in load()}
    bugs = {row["bug"]: row for row in stored_rows("mutants") if row["row"] == "bug" and row["bug"] in mutants}
    for one in verdicts:
        bug = {"row": "bug", "bug": one.mutant.name, "outcome": one.outcome, "caught_by": one.reason}
        bugs[one.mutant.name] = {**bug, "seconds": round(one.seconds, 1)}
    rows: list[dict[str, Any]] = []
    for package in packages([mutants[name] for name in bugs]):
        of = Counter(row["outcome"] for name, row in bugs.items() if _package(Path(mutants[name].file)) == package["package"])
        rows.append({"row": "package", **package, "caught": of["caught"], "missed": of["missed"] + of["broken"]})
    rows += [bugs[name] for name in sorted(bugs)]
    store("mutants", "python -m tests.mutants --record", rows)


if __name__ == "__main__":
    sys.exit(main())
