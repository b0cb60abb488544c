"""Which files of its machine a node lets sources read and sinks write: whoever reaches the node may name one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sbon_node.errors import SbonError

ANYWHERE = ("/",)


def check_within(path: str, roots: Sequence[str]) -> None:
    """Raises :class:`SbonError` ``outside-roots`` for a path that, links followed, is in none of the folders; whether there is
    anything is not told."""
    found = Path(path).expanduser().resolve()
    if not any(found.is_relative_to(Path(root).expanduser().resolve()) for root in roots):
        raise SbonError(
            "outside-roots",
            f"{path} is in no folder that this node lets others use",
            where="options.path",
            hint=f"it lets them use {', '.join(roots) or 'none'}; --data-roots names others when the node is started",
        )
