"""Which files of its machine a node lets sources read and sinks write: whoever reaches the node may name one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sbon_node.errors import SbonError

ANYWHERE = ("/",)


def check_within(path: str, roots: Sequence[str]) -> None:
    """Raises :class:`SbonError` ``outside-roots`` for a path that, links followed, is in none of the folders; whether there is
    anything is not told. ``bad-option`` for what is no path: with a NUL in it, or a home of nobody."""
    try:
        found = Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise SbonError("bad-option", f"{path!r} is no path: {error}", where="options.path") from error
    if not any(found.is_relative_to(Path(root).expanduser().resolve()) for root in roots):
        raise SbonError(
            "outside-roots",
            f"{path} is in no folder that this node lets others use",
            where="options.path",
            hint=f"it lets them use {', '.join(roots) or 'none'}; --data-roots names others when the node is started",
        )
