"""Makes files of round-trip times from published measurements.

python docs/tools/figures/matrices.py planetlab NetLatency-Data planetlab490_dyn.npz
python docs/tools/figures/matrices.py wondernetwork wittgenstein wondernetwork239.npz

The second word is the cloned repository; docs/figures/data.md says which. Each file has ``rtt_ms``, row to column, in
milliseconds: [18, n, n] or [n, n], NaN where a pair is missing.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROUNDS = 18
CITIES = Path("core/src/main/resources/Data")
KNOWN = 0.5
"""Least share of a city's pairs that must be known."""


def planetlab(repository: Path) -> NDArray[np.float64]:
    rounds = np.stack([np.loadtxt(repository / "PlanetLab" / f"PlanetLabData_{turn}") for turn in range(1, ROUNDS + 1)])
    rounds[(rounds <= 0) & ~np.eye(rounds.shape[1], dtype=bool)] = np.nan
    return rounds.round(2)


def wondernetwork(repository: Path) -> NDArray[np.float64]:
    """Read the average of each city's pings. A city is found by the words with which another's file calls it."""
    names = sorted(folder.name for folder in (repository / CITIES).iterdir())
    key = {_letters(name): number for number, name in enumerate(names)}
    rtt_ms = np.full((len(names), len(names)), np.nan)
    for row, name in enumerate(names):
        with (repository / CITIES / name / f"{name}Ping.csv").open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                words = line["City"].split()
                column = next((key[start] for start in map(_letters, _starts(words)) if start in key), None)
                if column is not None and line["hidden.1"]:
                    rtt_ms[row, column] = float(line["hidden.1"])
    np.fill_diagonal(rtt_ms, 0.0)
    kept = np.isfinite(rtt_ms).mean(axis=1) >= KNOWN
    return rtt_ms[np.ix_(kept, kept)]


def _starts(words: list[str]) -> list[str]:
    """A name's first words, the longest first."""
    return [" ".join(words[:count]) for count in range(len(words), 0, -1)]


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


if __name__ == "__main__":
    kinds = {"planetlab": planetlab, "wondernetwork": wondernetwork}
    if len(sys.argv) != 4 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    made = kinds[sys.argv[1]](Path(sys.argv[2]))
    np.savez_compressed(sys.argv[3], rtt_ms=made.astype(np.float32))
    print(f"{sys.argv[3]}: {' x '.join(map(str, made.shape))}, {np.isnan(made).mean():.2%} missing")
