"""Every command that the documents show is one there is, with options it has; what is not parsed is listed, with who runs it."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import click
import pytest
from click.testing import CliRunner

from sbon_cli.main import sbon
from tests.cli.parsed import invocations, path_of
from tests.docs.reading import DOCUMENTS, ROOT, blocks, mentioned, text_of, typed

SHOWN = [(block.document, line) for block in blocks() if block.language == "console" for line in typed(block.text)]
OURS = [(name, line) for name, line in SHOWN if list(invocations(line))]
CONTAINERS = re.compile(r"^(?:docker-compose exec -T \S+|kubectl exec -n sbon \S+ --) (?=sbon )")
"""Programs that run one of our commands elsewhere."""
NOT_PARSED = {
    ".": "tests/docs/test_tour.py types it",
    "cat": "tests/docs/test_tour.py types it",
    "curl": "tests/docs/test_tour.py types it, and tests/connectors post as it does",
    "docker": "tests/deploy builds the image where an engine can be had",
    "docker-compose": "tests/deploy/test_compose.py runs it where an engine can be had",
    "echo": "tests/docs/test_tour.py and tests/cli/test_shells.py type it",
    "git": "docs/figures/data.md clones repositories of others",
    "export": "tests/docs/test_tour.py types it",
    "install": "below: the files it names are there",
    "kubectl": "tests/deploy/test_manifests.py checks the objects; there is no cluster to try it on",
    "make": "below: its targets are there",
    "pip": "tests/connectors/test_installed.py runs that package as installed",
    "python": "below: its modules and files are there",
    "python3": "deploy/Dockerfile does the same",
    "systemctl": "tests/deploy/test_manifests.py checks the unit",
}
"""By their first word: commands of others, which are checked for the shell's grammar alone, and who else sees to them."""


def test_the_documents_show_commands() -> None:
    assert {name for name, _ in OURS} >= {"README.md", "cli.md", "connectors.md", "placement.md", "savings.md", "operations.md"}
    assert len(OURS) > 60


def test_all_others_are_listed() -> None:
    others = {program(line) for _, line in SHOWN if not list(invocations(unwrapped(line)))}
    assert others == set(NOT_PARSED)


@pytest.mark.parametrize("name, line", SHOWN, ids=[f"{name}: {line}"[:120] for name, line in SHOWN])
def test_a_command_is_understood(name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True)
    assert (grammar.returncode, grammar.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    for file in re.findall(r"[\w./-]+\.(?:npz|toml|sql|csv)", line):
        if not file.startswith("/"):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text("")
    for arguments in invocations(unwrapped(line)):
        with CliRunner().isolation(input="y\n"):
            assert path_of(arguments)


def test_targets_modules_and_files_are_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    lines = [line.split() for _, line in SHOWN]
    assert {word for words in lines if words[0] == "make" for word in words[1:]} <= set(targets)
    started = [words[words.index("-m") + 1] for words in lines if Path(words[0]).name == "python" and "-m" in words]
    assert set(started) == {"sbon_lab.simulation", "pytest", "tests.mutants", "tests.nodes.planning_lag"}
    assert all(map(find_spec, started))
    paths = {word for words in lines for word in words if re.match(r"(?:\./)?(?:tests|deploy|examples|docs/tools)/", word)}
    assert len(paths) > 5
    assert {path for path in paths if not (ROOT / path).exists()} == set()


MENTIONED = sorted({(file.name, words) for file in DOCUMENTS for words in mentioned(text_of(file))})


@pytest.mark.parametrize("name, words", MENTIONED, ids=[f"{name}: {words}" for name, words in MENTIONED])
def test_a_command_in_a_sentence_is_there(name: str, words: str) -> None:
    """The command and its options; values may be left out or be placeholders."""
    context, command = click.Context(sbon, info_name="sbon"), cast(click.Command, sbon)
    before = ""
    for word in words.split()[1:]:
        below = command.get_command(context, word) if isinstance(command, click.Group) else None
        if word.startswith("-"):
            known = {option for param in command.get_params(context) for option in param.opts + param.secondary_opts}
            assert word in known, f"{word} is no option of {context.command_path}"
        elif below is not None:
            context, command = click.Context(below, info_name=word, parent=context), below
        elif isinstance(command, click.Group) and not before.startswith("-"):
            assert word.isupper(), f"{context.command_path} has no command {word}"
        before = word


def program(line: str) -> str:
    return Path(line.split()[0]).name or "."


def unwrapped(line: str) -> str:
    return CONTAINERS.sub("", line)
