"""Arrow without pandas, which takes 40 MB and half a second in every process that converts a Python value for Arrow.

With the first such value Arrow imports pandas, only to check that the value has none of pandas' types. Modules that use Arrow
import this one. Pandas can still be imported afterwards, and ``to_pandas`` does so.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


class _Hidden(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is hidden, since it takes 30 MB")
        return None


def use_arrow_without_pandas() -> None:
    """Have Arrow look for pandas now, and find none."""
    if "pandas" in sys.modules:
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.scalar(False)
    finally:
        sys.meta_path.remove(hidden)


def hide_pandas() -> None:
    """Let no import of pandas succeed, for a process in which no user's code runs: Spark imports it wherever it is installed."""
    sys.meta_path.insert(0, _Hidden())


def show_pandas() -> None:
    """Undo :func:`hide_pandas`. Spark makes no Python function over Arrow without pandas, though such a function needs none."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Hidden)]


use_arrow_without_pandas()
