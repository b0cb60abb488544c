"""Processes of a node convert Python values for Arrow without pandas, which takes 30 MB in each."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pandas")

CONVERT = """
import sys
import {module}
import pyarrow as pa
table = pa.table({{"a": [1, 2], "b": ["x", None]}})
assert "pandas" not in sys.modules, "Arrow has imported pandas"
"""
AFTERWARDS = """
assert list(table.to_pandas()["a"]) == [1, 2]
import pandas as pd
assert pa.Table.from_pandas(pd.DataFrame({"a": [1, 2]})).num_rows == 2
"""


@pytest.mark.one_part_per_commit("processes without pandas", parts=2)
@pytest.mark.parametrize(
    "module, then",
    [
        ("sbon_node.connectors.sources.registry", ""),
        ("sbon_node.connectors.sources.http", ""),
        ("sbon_node.connectors.formats.lines", ""),
        ("sbon_node.connectors.sinks.runner", ""),
        ("sbon_node.engine.spark.operators.source", ""),
        ("sbon_node.engine.spark.operators.output", ""),
        ("sbon_node.base.arrow_without_pandas", AFTERWARDS),
    ],
)
def test_arrow_does_not_import_pandas(module: str, then: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONVERT.format(module=module) + then], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_hidden_pandas_can_be_shown_again() -> None:
    code = """
from sbon_node.base.arrow_without_pandas import hide_pandas, show_pandas
hide_pandas()
try:
    import pandas
except ModuleNotFoundError:
    show_pandas()
    import pandas
else:
    raise SystemExit("it was not hidden")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
