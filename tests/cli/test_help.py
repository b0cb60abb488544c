"""The help of every command: what it says, its examples, and that saying it loads nothing heavy."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sbon import SbonError, connect
from sbon_cli.commands.queries.submit import GROUPS
from sbon_cli.main import sbon
from sbon_cli.options.examples import examples
from sbon_cli.verbs import verbs
from tests.cli.parsed import invocations, path_of

CLI = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def commands(group: click.Command, path: str, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if path:
        yield path, group
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from commands(command, f"{path} {name}".strip(), context)


ALL = dict(commands(sbon, "", click.Context(sbon)))


def test_there_are_examples_of_every_command_and_of_no_other() -> None:
    assert set(ALL) == set(examples())


@pytest.mark.parametrize("path", ALL)
def test_help_tells_what_it_does_with_examples(path: str) -> None:
    result = CliRunner().invoke(sbon, [*path.split(), "--help"], terminal_width=200)
    assert result.exit_code == 0, result.output
    assert ALL[path].help
    for line in examples()[path]:
        assert f"  {line}\n" in result.output


def test_the_options_of_submit_are_grouped_and_four_strategies_are_named() -> None:
    told = CliRunner().invoke(sbon, ["submit", "--help"], terminal_width=80).output
    _, *groups = re.split(r"^(?=\S.*:$)", told, flags=re.M)
    assert [group.partition(":")[0] for group in groups if "  -" in group.partition("Examples")[0]] == list(GROUPS)
    flags = {flag for one in ALL["submit"].params if isinstance(one, click.Option) for flag in one.opts}
    assert [flag for flag in sorted(flags) if not re.search(rf"  .*{flag}\b", told)] == []
    assert len(told.partition("Examples:")[0].splitlines()) <= 47
    strategy = " ".join(told.partition("--strategy")[2].partition("--objective")[0].split())
    assert all(re.search(rf"\b{name}\b", strategy) for name in ("hybrid", "auto", "producer", "consumer", "docs/placement.md"))
    assert "local-search" not in told


OWN_WORDS = ("in flight", "virtual place", "shipped whole", "shipping every", "shipping everything")


@pytest.mark.parametrize("path", ALL)
def test_help_speaks_words_that_need_no_learning(path: str) -> None:
    told = CliRunner().invoke(sbon, [*path.split(), "--help"], terminal_width=200).output
    assert [word for word in OWN_WORDS if word in told] == []


DOCUMENTS = sorted([*(Path(__file__).parents[2] / "docs").rglob("*.md"), Path(__file__).parents[2] / "README.md"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_speak_them_too(document: Path) -> None:
    told = " ".join(document.read_text(encoding="utf-8").split())
    assert [word for word in OWN_WORDS if word in told] == []


LINES = [(path, line) for path, lines in examples().items() for line in lines if path != "completion"]


@pytest.mark.parametrize("path, line", LINES, ids=[line for _, line in LINES])
def test_examples_are_understood(path: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed as the command itself would, down to its options, but not run."""
    monkeypatch.chdir(tmp_path)
    for name in ("latencies.npz", "schema.txt", "report.sql", "sbon.toml"):
        Path(name).write_text("")
    found = list(invocations(line))
    assert found, line
    for arguments in found:
        with CliRunner().isolation(input="y\n"):
            parsed = path_of(arguments)
        assert parsed == path or isinstance(ALL[path], click.Group), parsed


def test_the_list_of_verbs_says_what_each_says_of_itself() -> None:
    for name, verb in verbs().items():
        told = " ".join((ALL[name].help or "").split())
        assert told.startswith(verb.help.rstrip(".")), name


def test_the_documentation_has_every_command_and_exit_code() -> None:
    for path in ALL:
        assert f"`sbon {path}`" in CLI or f"`sbon {path} " in CLI, path
    for code in (0, 1, 2, 3, 130):
        assert f"| {code} |" in CLI


HEAVY = [
    *("pyspark", "py4j", "sqlglot", "pyarrow", "scipy", "numpy", "aiohttp", "asyncio", "structlog", "matplotlib", "duckdb"),
    *("prompt_toolkit", "psutil"),
]
LIGHT = [["--help"], ["members"], ["stream", "list"], ["query", "show", "q1"], ["queries"], ["usage", "q1"], ["join", "--help"]]
LOADED = """
import sys
from sbon_cli.main import main
sys.argv = ["sbon", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.one_part_per_commit("small commands that load little", parts=3)
@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_small_commands_load_nothing_heavy(api: str, arguments: list[str]) -> None:
    command = [sys.executable, "-c", LOADED, *arguments]
    result = subprocess.run(command, env={**os.environ, "SBON_API": api}, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    loaded = set(result.stderr.split())
    assert "sbon_cli.main" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_heavy_modules_are_imported_where_they_are_used(api: str) -> None:
    """So that the test above is known to see it."""
    command = [sys.executable, "-c", LOADED, "bench", "planning", "--queries", "none"]
    result = subprocess.run(command, env={**os.environ, "SBON_API": api}, capture_output=True, text=True, check=False)
    assert "sqlglot" in result.stderr.split()


def completed(shell_words: str, api: str) -> list[str]:
    """Return bash's completions for a line that ends with its last word."""
    words = shell_words.split(" ")
    environment = {**os.environ, "_SBON_COMPLETE": "bash_complete", "COMP_WORDS": shell_words, "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-m", "sbon_cli.main"]
    result = subprocess.run(command, env={**environment, "SBON_API": api}, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


COMPLETED: list[tuple[str, list[str]]] = [
    ("sbon mem", ["members"]),
    ("sbon stream sh", ["show"]),
    ("sbon members --ne", ["--near"]),
    ("sbon members --near ", ["a", "b"]),
    ("sbon rtt b", ["b"]),
    ("sbon stream show fl", ["flights"]),
    ("sbon query follow ", ["q1"]),
    ("sbon usage q", ["q1"]),
    ("sbon submit --consumer ", ["a", "b"]),
    ("sbon completion ", ["bash", "zsh", "fish"]),
]


@pytest.mark.one_part_per_commit("lines that a shell completes", parts=3)
@pytest.mark.parametrize("line, expected", COMPLETED)
def test_shells_complete_verbs_options_and_names(api: str, line: str, expected: list[str]) -> None:
    assert completed(line, api) == expected


def test_where_no_node_answers_names_are_silently_not_completed() -> None:
    assert completed("sbon members --near ", "http://127.0.0.1:1") == []
    assert completed("sbon members --ne", "http://127.0.0.1:1") == ["--near"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(shell: str) -> None:
    script = CliRunner().invoke(sbon, ["completion", shell]).output
    assert "_SBON_COMPLETE" in script
    assert "sbon" in script
    if shell == "bash":
        ask = f"{script}\ncomplete -p sbon"
        told = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=False)
        assert "-F _sbon_completion" in told.stdout, told.stderr


def test_lists_are_lines_of_json(api: str) -> None:
    result = CliRunner().invoke(sbon, ["--node", api, "members", "--json"])
    told: list[Any] = [json.loads(line) for line in result.stdout.splitlines()]
    assert [member["name"] for member in told] == ["a", "b"]


FOREIGN = {"help", "add-modules", "add-opens", "enable-native-access", "sun-misc-unsafe-memory-access", "data-binary"}
"""Flags of every command, of Java and of curl."""


def texts(path: Path) -> list[str]:
    """Return the strings of a module, or the lines of a file of texts."""
    if path.suffix == ".toml":
        return path.read_text(encoding="utf-8").splitlines()
    tree = ast.parse(path.read_text(encoding="utf-8") if path.suffix == ".py" else "")
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_each_flag_that_a_message_names_is_one_of_a_command() -> None:
    root = Path(__file__).parents[2]
    known = {flag for command in [sbon, *ALL.values()] for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    named = {
        f"--{flag}": str(path)
        for folder in ("sbon_node", "protocol", "cli/sbon", "cli/sbon_cli")
        for path in (root / folder).rglob("*.*")
        for text in texts(path)
        for flag in re.findall(r"(?<![\w-])--([a-z][a-z-]*[a-z])", text)
        if flag not in FOREIGN
    }
    assert {flag: path for flag, path in named.items() if flag not in known} == {}


def test_hints_about_the_address_of_a_node_are_for_commands_and_programs() -> None:
    wrong = (("http://127.0.0.1:1", "no node answers", ""), ("ftp://paris", "is not the URL of a node's API", "api"))
    for api, why, where in wrong:
        with pytest.raises(SbonError, match=why) as refused:
            connect(api)
        assert "sbon --node URL COMMAND" in refused.value.hint
        assert "in Python connect(URL)" in refused.value.hint
        assert refused.value.where == where
