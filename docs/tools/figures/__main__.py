"""Figures of docs/figures: python docs/tools/figures writes the pages from docs/results.

python docs/tools/figures record NAME -- COMMAND --json runs a command and keeps its rows as docs/results/NAME.json.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pages import documents
from record import record
from results import FiguresError

ROOT = Path(__file__).parents[3]


def main(arguments: list[str]) -> None:
    match arguments:
        case []:
            for path, text in documents(ROOT).items():
                path.write_text(text, encoding="utf-8")
        case ["record", name, "--", *command] if command:
            print(record(ROOT, name, command).relative_to(ROOT))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except FiguresError as error:
        sys.exit(str(error))
