"""Round-trip times that were measured on real networks: no part of this project, an extra where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "SBON_RTT_DATA"
"""Names the folder of the matrices in the environment."""


def measured(file: str) -> Path:
    """Return the matrix; skip the test where no folder of matrices is named. A matrix missing from the folder is a mistake."""
    if not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} names no folder of measured round-trip times")
    return Path(os.environ[VARIABLE]) / file
