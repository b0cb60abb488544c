"""Read the catalogue of planted bugs: one TOML file for each package, one table for each mutant."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = Path(__file__).parent / "catalogue"

FIELDS = {"why", "file", "before", "after", "tests"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: ``before`` occurs exactly once in ``file`` and becomes ``after``; at least one of ``tests`` must then fail.

    ``why`` says what a user would lose. ``tests`` are arguments of pytest, relative to the root of the project.
    """

    name: str
    why: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Plant the bug in the tree at ``root``. Raises ``ValueError`` where it does not fit the code any more."""
        path = root / self.file
        text = path.read_text()
        if text.count(self.before) != 1:
            raise ValueError(f"{self.name}: the text to replace occurs {text.count(self.before)} times in {self.file}")
        path.write_text(text.replace(self.before, self.after))


def load(folder: Path = CATALOGUE) -> list[Mutant]:
    """All mutants by name. Raises ``ValueError`` for a field that is missing, unknown or empty."""
    mutants = []
    for path in sorted(folder.glob("*.toml")):
        for name, entry in tomllib.loads(path.read_text()).items():
            if set(entry) != FIELDS or not entry["tests"] or entry["before"] == entry["after"]:
                raise ValueError(f"{path.name}: {name}: needs {', '.join(sorted(FIELDS))}, and a change")
            mutants.append(Mutant(name=f"{path.stem}/{name}", **{**entry, "tests": tuple(entry["tests"])}))
    return mutants
