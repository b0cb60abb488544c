"""docs/figures is what `make figures` writes from docs/results, and no table is there without its result."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.reading import ROOT, text_of

sys.path.insert(0, str(ROOT / "docs" / "tools" / "figures"))
from pages import documents
from record import record
from results import FiguresError, names, read

PAGES = sorted((ROOT / "docs" / "figures").glob("*.md"))
ROWS = [
    {"nodes": 10, "strategy": "a", "ratio": 1.234},
    {"nodes": 10, "strategy": "b", "ratio": None},
    {"nodes": 2000, "strategy": "b", "ratio": 2},
]
TABLE = """```table
results = ["made-up"]
by = ["nodes"]
columns = [["nodes", "{nodes:,}"], ["a", "{ratio:.2f}", {strategy = "a"}], ["b", "{ratio:.2f}", {strategy = "b"}]]
```
"""


def test_every_page_is_what_the_generator_writes() -> None:
    written = documents(ROOT)
    assert sorted(written) == PAGES
    assert [page.name for page, text in written.items() if text_of(page) != text] == [], "run: make figures"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_every_table_names_its_results(page: Path) -> None:
    for table in re.findall(r"(?:^\|[^\n]*\n)+\n(.*?)(?:\n\n|\Z)", text_of(page), re.MULTILINE | re.DOTALL):
        assert table.startswith("Measured: ")
        assert re.findall(r"\]\(\.\./results/([\w-]+)\.json\)", table)


@pytest.mark.parametrize("name", names(ROOT))
def test_a_result_says_when_and_how_it_was_measured(name: str) -> None:
    result = read(ROOT, name)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", str(result.date))
    assert result.commands or result.note
    assert result.commit is not None or "before results were kept" in result.note


def test_pages_are_of_a_length_to_read() -> None:
    assert {page.name: len(text_of(page).splitlines()) for page in PAGES if len(text_of(page).splitlines()) > 150} == {}


def project(root: Path, template: str, commit: str | None = "abc") -> Path:
    (root / "docs" / "figures").mkdir(parents=True)
    (root / "docs" / "results").mkdir()
    result = {"date": "2026-11-23", "commit": commit, "command": "sbon bench engine --json", "rows": ROWS}
    (root / "docs" / "results" / "made-up.json").write_text(json.dumps(result))
    (root / "docs" / "figures" / "page.md.in").write_text(f"# Page\n\n{template}")
    return root


def test_a_page_has_the_command_the_table_and_its_origin(tmp_path: Path) -> None:
    [(path, text)] = documents(project(tmp_path, f"Up to <<made-up nodes=2000: {{ratio:.1f}}>>.\n\n{TABLE}")).items()
    assert path == tmp_path / "docs" / "figures" / "page.md"
    assert text.split("# Page\n")[1] == (
        "\nUp to 2.0.\n\n```console\n$ sbon bench engine --json\n```\n\n"
        "| nodes | a | b |\n| ---: | ---: | ---: |\n| 10 | 1.23 | |\n| 2,000 | | 2.00 |\n\n"
        "Measured: [made-up](../results/made-up.json), 2026-11-23, commit abc.\n"
    )


@pytest.mark.parametrize(
    "template, message",
    [
        (TABLE.replace('["made-up"]', "[]"), "names no result"),
        (TABLE.replace("made-up", "unknown"), "no result docs/results/unknown.json"),
        (TABLE.replace("{ratio:.2f}", "{penalty:.2f}"), "no row has a value for the column 'a'"),
        ("| a |\n| --- |\n| 1 |\n", "a table is written by hand"),
        (f"{TABLE}\nUp to <<made-up nodes=3: {{ratio}}>>.", "has no row for <<made-up nodes=3"),
        ("Words alone.\n", "no page shows docs/results/made-up.json"),
    ],
)
def test_a_figure_without_a_result_is_an_error(template: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FiguresError, match=re.escape(message)):
        documents(project(tmp_path, template))


def test_a_result_without_a_commit_says_why(tmp_path: Path) -> None:
    with pytest.raises(FiguresError, match="neither a commit nor a note"):
        documents(project(tmp_path, TABLE, commit=None))


def test_the_recorder_keeps_rows_with_date_commit_and_command(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        settings = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", "-C", str(tmp_path), *settings, *words], check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    (tmp_path / "code.py").write_text("1")
    git("add", "code.py")
    git("commit", "--quiet", "-m", "Add code")
    printed = json.dumps({"name": "x", "rows": ROWS})
    written = record(tmp_path, "made-up", [sys.executable, "-c", f"print({printed!r})"])
    found = read(tmp_path, "made-up")
    assert written == tmp_path / "docs" / "results" / "made-up.json"
    assert list(found.rows) == ROWS
    assert found.commit is not None
    assert git("rev-parse", "HEAD").startswith(found.commit)
    assert found.commands[0].startswith(sys.executable)
    (tmp_path / "code.py").write_text("2")
    with pytest.raises(FiguresError, match="commit these changes first"):
        record(tmp_path, "made-up", [sys.executable, "-c", f"print({printed!r})"])
    git("checkout", "--quiet", "code.py")
    with pytest.raises(FiguresError, match="ended with 3 and printed no rows"):
        record(tmp_path, "made-up", [sys.executable, "-c", "raise SystemExit(3)"])
