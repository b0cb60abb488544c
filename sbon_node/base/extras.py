"""Optional packages for experiments, simulation and demo (``pip install 'sbon[experiments]'``)."""

from __future__ import annotations

import importlib
from typing import Any

from sbon_protocol.errors import SbonError

INSTALL = "pip install 'sbon[experiments]'; make demo does so itself"


def duckdb() -> Any:
    """Return the module; raise ``input-missing`` if it is not installed."""
    try:
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise SbonError("input-missing", "the package duckdb, which checks the rows, is not installed", hint=INSTALL) from error


def highspy() -> Any:
    """Return the module; raise ``input-missing`` if it is not installed."""
    try:
        return importlib.import_module("highspy")
    except ImportError as error:
        message = "the package highspy, which solves integer programs, is not installed"
        raise SbonError("input-missing", message, hint=INSTALL) from error


def matplotlib_figure() -> Any:
    """Return an empty figure that needs no display; raise ``input-missing`` if matplotlib is not installed."""
    try:
        figure = importlib.import_module("matplotlib.figure").Figure
    except ImportError as error:
        raise SbonError(
            "input-missing", "the package matplotlib, which draws pictures, is not installed", hint=INSTALL
        ) from error
    return lambda: figure(figsize=(10, 5))
