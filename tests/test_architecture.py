"""The shape of the project: what imports what, and what a wheel brings."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    p
    for folder in ("sbon_node", "protocol/sbon_protocol", "cli/sbon", "cli/sbon_cli", "lab/sbon_lab")
    for p in (ROOT / folder).rglob("*.py")
)


@pytest.mark.only_in_test_all("imports, which make lint checks as well")
def test_imports_run_one_way() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_the_wheel_brings_four_packages_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0] for n in names if ".dist-info/" not in n} == {"sbon", "sbon_node", "sbon_protocol", "sbon_cli"}
    assert {"sbon_node/node.py", "sbon_protocol/messages.py", "sbon_cli/main.py"} <= set(names)
    page = {path.relative_to(ROOT).as_posix() for path in (ROOT / "sbon_node/api/dashboard").rglob("*") if path.is_file()}
    assert "sbon_node/api/dashboard/index.html" in page
    assert page <= set(names)


PURE = (
    "sbon_node/model/",
    "sbon_node/overlay/space/",
    "sbon_node/overlay/membership/detector/swim",
    "sbon_node/overlay/membership/table",
    "sbon_node/placement/",
    "sbon_node/planning/sql/",
    "sbon_node/adaptation/rules",
    "sbon_node/papers/ants/algorithm/",
    "sbon_node/papers/nes/",
    "sbon_node/papers/opb/",
    "sbon_node/papers/sand/algorithm/",
    "sbon_node/streams/outbox/ledger",
)


def test_pure_code_draws_from_its_given_generator() -> None:
    """``random`` and ``numpy.random`` are imported there for the types of generators."""
    inside = [path for path in SOURCES if str(path.relative_to(ROOT)).startswith(PURE)]
    assert not [one for one in PURE if not any(str(path.relative_to(ROOT)).startswith(one) for path in inside)]
    assert [f"{path}:{line}" for path in inside for line in draws(path.read_text(encoding="utf-8"))] == []
    assert draws("import random\nrandom.random()\nrandom.Random(3)\nnp.random.default_rng(1)\nrng: random.Random") == [2, 3, 4]


def draws(text: str) -> list[int]:
    """Return the lines of a file that draw from a generator which is no argument, or seed one with another number."""
    tree = ast.walk(ast.parse(text))
    calls = sorted((node.lineno, ast.unparse(node)) for node in tree if isinstance(node, ast.Call))
    foreign = ("random.", "np.random.", "numpy.random.")
    return [line for line, call in calls if call.startswith(foreign) and not call.startswith("random.Random(rng.")]


CITED = re.compile(r"docs/design\.md, section (\d+)")


def test_the_design_has_the_sections_that_are_cited() -> None:
    cited = {int(number) for path in SOURCES for number in CITED.findall(path.read_text(encoding="utf-8"))}
    written = re.findall(r"^## (\d+)\. ", (ROOT / "docs" / "design.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert written == [str(number) for number in range(1, len(written) + 1)]
    assert cited
    assert max(cited) <= len(written)


MAX_LINES = {"file": 800, "class": 400, "function": 80}


def too_long(text: str) -> dict[str, int]:
    """Return what is longer than :data:`MAX_LINES`, with its lines."""
    tree = ast.parse(text)
    lengths = {"the file": ("file", len(text.splitlines()))}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            lengths[f"{node.name}, line {node.lineno}"] = (kind, node.end_lineno - node.lineno + 1)
    return {name: lines for name, (kind, lines) in lengths.items() if lines > MAX_LINES[kind]}


def test_files_classes_and_functions_stay_short_and_files_say_what_they_are() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in SOURCES}
    assert len(texts) > 100
    assert {name: long for name, text in texts.items() if (long := too_long(text))} == {}
    assert too_long("class A:\n" + 400 * "    x = 1\n") == {"A, line 1": 401}
    assert [name for name, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))] == []


PACKAGES = ["adaptation", "api", "hosting", "operations", "overlay", "ownership", "papers", "queries"]
WIRING = [ROOT / "sbon_node/node.py", ROOT / "sbon_node/context.py", *sorted((ROOT / "sbon_node").glob("*/assemble.py"))]


def sets_into_others(tree: ast.AST) -> list[str]:
    """Return the assignments to attributes of others than ``self``."""
    assigned = [
        target
        for node in ast.walk(tree)
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
    ]
    return [
        ast.unparse(part)
        for target in assigned
        for part in (target.elts if isinstance(target, ast.Tuple) else [target])
        if isinstance(part, ast.Attribute) and not (isinstance(part.value, ast.Name) and part.value.id == "self")
    ]


def test_no_part_of_a_node_is_set_into_another() -> None:
    """Neither where parts are assembled, nor by the constructor of another part."""
    assert len(WIRING) > 5
    found = {path: sets_into_others(ast.parse(path.read_text(encoding="utf-8"))) for path in WIRING}
    for path in (path for package in PACKAGES for path in (ROOT / "sbon_node" / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                found.setdefault(path, []).extend(sets_into_others(node))
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert sets_into_others(ast.parse("a.b = 1\nself.c, d.e.f = 2, 3\nself.g.h: int = 4")) == ["a.b", "d.e.f", "self.g.h"]


PRIVATE_PARTS = re.compile(
    r"\b(?:daemon|created|hosting|ownership|queries|submitting|adaptation|local|overlay|operations)\._[a-z]\w*"
)
"""Private names of a node and of what its packages assemble."""
INSIDE_PARTS = re.compile(r"\b(?:daemon|created)(?:\.[a-z]\w*|\([^()]*\)|\[[^\[\]]*\])*\._[a-z]\w*")
"""Private names of whatever is reached through a node."""


def private_uses(text: str, pattern: re.Pattern[str]) -> list[str]:
    return [found.group() for found in pattern.finditer(text)]


@pytest.mark.parametrize(
    "folder, pattern",
    [("tests", PRIVATE_PARTS), ("lab", PRIVATE_PARTS), ("lab", INSIDE_PARTS)],
    ids=["tests", "lab", "lab, anywhere in a node"],
)
def test_tests_and_laboratory_use_public_parts_of_a_node(folder: str, pattern: re.Pattern[str]) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)}
    assert len(texts) > 100
    assert {path: found for path, text in texts.items() if (found := private_uses(text, pattern))} == {}
    assert private_uses('node.daemon._x + node.daemon.hosting.sinks.at("b")[0].y', pattern) == ["daemon._x"]
    assert private_uses("node.daemon.hosting.sinks._open", INSIDE_PARTS) == ["daemon.hosting.sinks._open"]
