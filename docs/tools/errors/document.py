"""docs/errors.md from the table of error codes."""

from __future__ import annotations

import tomllib
from pathlib import Path

from sbon_cli.terminal.exit_codes import exit_code_of
from sbon_node.api.server.problems import status_of
from sbon_protocol.errors import SbonError

TABLE = "sbon_node/error_codes.toml"
FILE = "docs/errors.md"

_INTRODUCTION = """# Errors

Every error has a `code`, which stays the same between versions, a `message`, and where there is more to say `where`, `hint` and
`details`. Programs should look at the code; the message and the hint say more than this page can.

- **HTTP** is the status with which the API answers such an error ([api.md](api.md)). Errors that do not come from the API, such
  as the reason of a failed query, have no status; the column says which one they would have.
- **Exit** is the code with which a command ends after the error ([cli.md](cli.md)).

Spark names some errors of a query itself, such as `unresolved-column`: such names are codes too, and Spark's documentation lists
them. `make errors` writes this page.
"""


class Section:
    """A heading, a sentence below it, and codes with meaning and remedy."""

    def __init__(self, table: dict[str, str | list[str]]) -> None:
        self.title, self.text = str(table["title"]), str(table["text"])
        self.codes = {code: (entry[0], entry[1]) for code, entry in sorted(table.items()) if isinstance(entry, list)}


def sections(root: Path) -> list[Section]:
    return [Section(table) for table in tomllib.loads((root / TABLE).read_text(encoding="utf-8")).values()]


def document(root: Path) -> str:
    return "\n".join([_INTRODUCTION, *(_shown(section) for section in sections(root))]).rstrip("\n") + "\n"


def _shown(section: Section) -> str:
    lines = [
        f"## {section.title}",
        "",
        section.text,
        "",
        "| code | meaning | what to do | HTTP | exit |",
        "| --- | --- | --- | --- | --- |",
    ]
    for code, (meaning, remedy) in section.codes.items():
        cells = (f"`{code}`", meaning, remedy.replace("|", "\\|"), str(status_of(code)), str(exit_code_of(SbonError(code, ""))))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
