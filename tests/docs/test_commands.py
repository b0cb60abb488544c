"""Every command that the documentation shows is one there is, with options it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.parsed import invocations, path_of

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def lines(text: str) -> Iterator[str]:
    """What is typed in the console blocks of a text: after a prompt, with what is continued on further lines."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if typed := re.match(r"(?:[a-z-]+)?\$ +(.*)", line):
                yield re.sub(r"\s+#.*", "", typed[1])


SHOWN = [(file.name, line) for file in FILES for line in lines(file.read_text(encoding="utf-8")) if re.search(r"\bsbon ", line)]


def test_the_documents_show_commands() -> None:
    assert {name for name, _ in SHOWN} >= {"README.md", "cli.md", "connectors.md", "figures.md", "operations.md"}
    assert len(SHOWN) > 50


@pytest.mark.parametrize("name, line", SHOWN, ids=[f"{name}: {line}" for name, line in SHOWN])
def test_a_command_is_understood(name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in re.findall(r"[\w./-]+\.(?:npz|toml|sql|csv)", line):
        if not file.startswith("/"):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text("")
    for arguments in invocations(line):
        with CliRunner().isolation(input="y\n"):
            assert path_of(arguments)
