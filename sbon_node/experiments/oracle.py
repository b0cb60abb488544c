"""DuckDB, whose answers over the same files the demo, the suite and the benches compare theirs with."""

from __future__ import annotations

import importlib
from typing import Any

from sbon_node.errors import SbonError
from sbon_node.experiments.nycflights import INSTALL


def oracle() -> Any:
    """The module; raises ``input-missing`` where it is not installed: only what checks itself needs it."""
    try:
        return importlib.import_module("duckdb")
    except ImportError as error:
        raise SbonError("input-missing", "the package duckdb, which checks the rows, is not installed", hint=INSTALL) from error
