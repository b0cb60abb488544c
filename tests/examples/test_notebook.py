"""The notebook runs from its first cell to its last, in a process of its own as a kernel would be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

NOTEBOOKS = pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)


def cells_of(notebook: Path) -> list[Any]:
    return [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]


def program_of(notebook: Path) -> str:
    return "\n\n".join("".join(cell["source"]) for cell in cells_of(notebook))


@NOTEBOOKS
def test_a_notebook_is_committed_without_its_output(notebook: Path) -> None:
    cells = cells_of(notebook)
    assert cells
    assert all(cell["outputs"] == [] for cell in cells)
    compile(program_of(notebook), notebook.name, "exec")


@pytest.mark.live
@pytest.mark.only_in_test_all("notebooks on live nodes")
@NOTEBOOKS
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    program = tmp_path / "notebook.py"
    program.write_text(program_of(notebook))
    result = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "% of sending all rows" in result.stdout
