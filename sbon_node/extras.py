"""Packages that a node does without: experiments, simulation and demo need them (``pip install 'sbon[experiments]'``)."""

from __future__ import annotations

import importlib
from typing import Any

from sbon_node.errors import SbonError

INSTALL = "pip install 'sbon[experiments]'; make demo does so itself"


def duckdb() -> Any:
    """The module; raises ``input-missing`` where it is not installed."""
    try:
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise SbonError("input-missing", "the package duckdb, which checks the rows, is not installed", hint=INSTALL) from error


def highspy() -> Any:
    """The module; raises ``input-missing`` where it is not installed."""
    try:
        return importlib.import_module("highspy")
    except ImportError as error:
        message = "the package highspy, which solves integer programmes, is not installed"
        raise SbonError("input-missing", message, hint=INSTALL) from error


def matplotlib_figure() -> Any:
    """Makes an empty figure that needs no display; raises ``input-missing`` where matplotlib is not installed."""
    try:
        figure = importlib.import_module("matplotlib.figure").Figure
    except ImportError as error:
        raise SbonError(
            "input-missing", "the package matplotlib, which draws pictures, is not installed", hint=INSTALL
        ) from error
    return lambda: figure(figsize=(10, 5))
