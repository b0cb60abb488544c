"""Names beside points in a picture: within the frame, and without overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

MARGIN = 0.04
"""Share of the frame that is left free around all points."""
SPOTS = tuple(
    (right * far, up * far, across, down)
    for far in (6, 14, 24)
    for right, up, across, down in (
        *((1, 0, "left", "center"), (-1, 0, "right", "center"), (0, 1, "center", "bottom"), (0, -1, "center", "top")),
        *((1, 1, "left", "bottom"), (1, -1, "left", "top"), (-1, 1, "right", "bottom"), (-1, -1, "right", "top")),
    )
)
"""Offsets in points and alignments, in the order in which they are tried."""

Named = tuple[str, float, float]


def label(figure: Any, axes: Any, points: Sequence[Named], *, size: float = 7.0) -> None:
    """Write each name at its first free spot, in a frame widened as needed. Call it after everything else is drawn.

    A name without a free spot is at the first spot within the frame.
    """
    texts = [axes.annotate(name, (x, y), xytext=(0, 0), textcoords="offset points", fontsize=size) for name, x, y in points]
    axes.margins(MARGIN)
    figure.draw_without_rendering()
    widest = max((text.get_window_extent().width for text in texts), default=0.0)
    frame = axes.get_window_extent()
    axes.margins(x=max(MARGIN, min(0.4, widest / frame.width)), y=2 * MARGIN)
    figure.draw_without_rendering()
    frame = axes.get_window_extent()
    dots = [axes.transData.transform((x, y)) for _, x, y in points]
    written: list[Any] = []
    for text, own in zip(texts, dots, strict=True):
        others = [dot for dot in dots if tuple(dot) != tuple(own)]
        written.append(_put(text, frame, written, others))


def _put(text: Any, frame: Any, written: Iterable[Any], dots: Iterable[Any]) -> Any:
    """Return the name's box on the canvas."""
    fallback = None
    for right, up, across, down in SPOTS:
        _move(text, right, up, across, down)
        box = text.get_window_extent()
        if not (frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1):
            continue
        fallback = fallback or (right, up, across, down)
        if not any(box.overlaps(other) for other in written) and not any(box.contains(*dot) for dot in dots):
            return box
    _move(text, *(fallback or SPOTS[0]))
    return text.get_window_extent()


def _move(text: Any, right: float, up: float, across: str, down: str) -> None:
    text.set_position((right, up))
    text.set_horizontalalignment(across)
    text.set_verticalalignment(down)
