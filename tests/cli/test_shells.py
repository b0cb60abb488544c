"""Completion in real shells, set up as docs/cli.md says: what a Tab makes of a line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell.terminal import TAB, Screen
from tests.connectors.servers import program
from tests.docs.reading import ROOT, text_of, typed

SHELLS = {
    "bash": ("--norc", "-i"),
    "zsh": ("-i",),
    "fish": ("--interactive",),
}
"""How each is started; bash's own file is read below, since the system's would make its prompt."""
COMPLETED = {
    "sbon memb": "sbon members",
    "sbon members --ne": "sbon members --near",
    "sbon stream show fl": "sbon stream show flights",
    "sbon query follow q": "sbon query follow q1",
    "sbon bench --he": "sbon bench --help",
    "sbon config check onl": "sbon config check only.toml",
}


@pytest.mark.one_part_per_commit("shells", parts=12)
@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_commands_options_names_and_files(shell: str, api: str, tmp_path: Path) -> None:
    path = program(shell, ("/bin", "/usr/bin"))
    environment = {
        "HOME": str(tmp_path),
        "ZDOTDIR": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / ".config"),
        "XDG_DATA_HOME": str(tmp_path / ".local" / "share"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SBON_API": api,
    }
    (tmp_path / "only.toml").write_text("")
    subprocess.run(["bash", "-e", "-c", set_up(shell)], env={**os.environ, **environment}, check=True)
    screen = Screen(path, SHELLS[shell], **environment)
    if shell == "bash":
        screen.type("PS1='ready '; . ~/.bashrc\n")
        screen.until("ready ")
    else:
        screen.type("echo rea''dy\n")
        screen.until("\nready")
    for line, whole in COMPLETED.items():
        screen.type(line)
        screen.until(line)
        screen.type(TAB)
        screen.until(whole)
        screen.type("\x15")
    screen.type("exit 0\n")
    assert screen.end() == 0


def set_up(shell: str) -> str:
    """The line for this shell."""
    block = text_of(ROOT / "docs" / "cli.md").split("## Completion")[1].split("```console\n")[1].split("```")[0]
    (line,) = (line for line in typed(block) if f"sbon completion {shell}" in line)
    return line
