"""Points in a plane drawn with characters, each with its name."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence

ROWS = 24
NARROWEST = 24
CELL_ASPECT = 2.0
"""Ratio of a character's height to its width."""
SCALE_COLUMNS = 20
LISTED = 3
"""Most lines of names without space."""

Cell = tuple[int, int]
"""Row and column of a character."""

Point = tuple[str, float, float]
"""A name and its position: to the right, and upwards."""


def drawn(points: Sequence[Point], width: int) -> list[str]:
    """Lines of at most ``width`` characters (at least 24), and a scale below; of equal length to the eye in both directions.

    Points at the same position share a dot. Names without space beside their dot are listed in at most :data:`LISTED` last lines.
    """
    width = max(width, NARROWEST)
    columns = width - min(max(len(name) for name, _, _ in points) + 2, width // 2)
    left, right = min(x for _, x, _ in points), max(x for _, x, _ in points)
    low, high = min(y for _, _, y in points), max(y for _, _, y in points)
    step = max((right - left) / (columns - 1), (high - low) / (ROWS - 1) / CELL_ASPECT) or 1.0
    dots: dict[Cell, list[str]] = {}
    for name, x, y in sorted(points):
        dots.setdefault((round((high - y) / step / CELL_ASPECT), round((x - left) / step)), []).append(name)
    grid, unnamed = _named(dots, width)
    if unnamed:  # A free line above and below makes space for more.
        grid, unnamed = _named({(row + 1, column): names for (row, column), names in dots.items()}, width, below=1)
    lines = ["".join(line).rstrip() for line in grid]
    lines += ["", _scale(step, min(SCALE_COLUMNS, width - 12))]
    left_out = f"names without space: {', '.join(unnamed)}"
    if unnamed:
        lines += textwrap.wrap(left_out, width, max_lines=LISTED, placeholder=" …", break_on_hyphens=False)
    return lines


def _named(dots: Mapping[Cell, Sequence[str]], width: int, *, below: int = 0) -> tuple[list[list[str]], list[str]]:
    """Return the characters of all dots and of the names that have space, and the other names."""
    grid = [[" "] * width for _ in range(max(row for row, _ in dots) + 1 + below)]
    for row, column in dots:
        grid[row][column] = "•"
    unnamed = [name for (row, column), names in sorted(dots.items()) for name in _without_space(grid, row, column, names)]
    return grid, sorted(unnamed)


def _without_space(grid: list[list[str]], row: int, column: int, names: Sequence[str]) -> Sequence[str]:
    """Write the names that fit beside the dot, on the line above or below; return the names if none does."""
    for count in range(len(names), 0, -1):
        rest = f" +{len(names) - count}" if count < len(names) else ""
        text = ", ".join(names[:count]) + rest
        for at, begin in _beside(row, column, len(text)):
            if _fits(grid, at, begin, len(text), column if at == row else None):
                grid[at][begin : begin + len(text)] = text
                return ()
    return names


def _beside(row: int, column: int, length: int) -> Iterator[tuple[int, int]]:
    yield row, column + 1
    yield row, column - length
    for at in (row - 1, row + 1):
        yield at, column
        yield at, column - length + 1


def _fits(grid: list[list[str]], row: int, begin: int, length: int, dot: int | None) -> bool:
    """Whether the name fits with a free cell on either side, except for its own dot."""
    if not 0 <= row < len(grid) or begin < 0 or begin + length > len(grid[row]):
        return False
    around = range(max(0, begin - 1), min(len(grid[row]), begin + length + 1))
    return all(grid[row][cell] == " " for cell in around if cell != dot)


def _scale(step: float, columns: int) -> str:
    """Return a bar of 1, 2 or 5 times a power of ten milliseconds."""
    most = step * columns
    power = 10.0 ** math.floor(math.log10(most))
    length = max(factor * power for factor in (1, 2, 5) if factor * power <= most)
    return f"├{'─' * max(0, round(length / step) - 2)}┤ {length:g} ms"
