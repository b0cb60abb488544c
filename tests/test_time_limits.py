"""A test that hangs ends by its time limit, and says where it hung."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

HANGS = """
import asyncio

async def test_waits_for_nothing():
    await asyncio.Event().wait()
"""


def test_every_test_has_a_time_limit(pytestconfig: pytest.Config) -> None:
    assert float(pytestconfig.getini("timeout")) > 0


def test_a_test_that_hangs_fails(tmp_path: Path) -> None:
    hanging = tmp_path / "test_hanging.py"
    hanging.write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-o", "timeout=1", "-p", "no:cacheprovider"]

    done = subprocess.run([*command, str(hanging)], cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert done.returncode == 1, done.stderr
    assert "Timeout" in done.stdout
    assert "1 failed" in done.stdout
