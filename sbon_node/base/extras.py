"""Optional packages for experiments, simulation and demo (``pip install 'sbon[experiments]'``); raises ``input-missing``."""

import importlib
from typing import Any

from sbon_protocol.errors import SbonError

INSTALL = "pip install 'sbon[experiments]'; make demo does so itself"


def duckdb() -> Any:
    return _required("duckdb", "checks the rows")


def highspy() -> Any:
    return _required("highspy", "solves integer programs")


def matplotlib_figure() -> Any:
    """Return an empty figure that needs no display."""
    figure = _required("matplotlib.figure", "draws pictures").Figure
    return lambda: figure(figsize=(10, 5))


def _required(name: str, work: str) -> Any:
    """Return the module; raise ``input-missing`` if its package is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"the package {name.partition('.')[0]}, which {work}, is not installed"
        raise SbonError("input-missing", message, hint=INSTALL) from error
