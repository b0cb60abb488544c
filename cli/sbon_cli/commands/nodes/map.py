"""``sbon map``: a picture of the cost space, on the terminal and as a file."""

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.markup import escape

from sbon import SbonError
from sbon.model import MemberInfo
from sbon_cli.client import Client
from sbon_cli.terminal.output import asks_node, counted, err, out, print_json, say, written
from sbon_node.base.extras import matplotlib_figure
from sbon_node.overlay.space.projection import principal_axes

SUFFIXES = (".png", ".svg", ".pdf")
THERE = ("alive", "suspect")
Point = tuple[str, float, float]
"""A name and its position: to the right, and upwards."""


class MapPoint(msgspec.Struct, frozen=True):
    """A node on the map: milliseconds along the first two principal axes of the latency dimensions."""

    name: str
    x_ms: float
    y_ms: float
    height_ms: float
    load_ms: float
    load_per_core: float | None = None
    """Runnable processes for each core; None where load has no weight."""


class Map(msgspec.Struct, frozen=True):
    """``shown`` is the share of the coordinates' variance that two axes show; ``unplaced`` nodes have published no coordinate
    yet.
    """

    places: tuple[MapPoint, ...]
    shown: float
    unplaced: tuple[str, ...]


@click.command("map")
@click.option(
    "--out", "file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a picture: .png, .svg or .pdf."
)
@asks_node
def map_(api: str, file: Path | None, json_: bool) -> None:
    """Draws the cost space: distances between nodes, in milliseconds of round-trip time.

    The picture shows the two principal axes of the latency dimensions. It leaves out the load, and heights, which are the latency
    from a node to the network and add to each distance; --out shows both, as size and colour.
    """
    check_suffix(file)
    cluster_map = map_of(Client(api).members())
    if file is not None:
        save(cluster_map, file)
        err().print(f"written: {escape(str(file))}")
    if json_:
        print_json(cluster_map)
    elif file is None:
        for line in drawn([(point.name, point.x_ms, point.y_ms) for point in cluster_map.places], out().width):
            say(escape(line))
        say(f"\n[dim]{escape(_legend(cluster_map))}[/]")


def _legend(network_map: Map) -> str:
    heights = [point.height_ms for point in network_map.places]
    added = f"heights add {min(heights):.1f} to {max(heights):.1f} ms a node"
    text = f"{counted(len(network_map.places), 'node')}; {shown_share(network_map)}; {added}"
    return f"{text}; no coordinate: {', '.join(network_map.unplaced)}" if network_map.unplaced else text


def map_of(members: Sequence[MemberInfo]) -> Map:
    """Map the live members. Raise :class:`SbonError` ``nobody-placed`` if none has a coordinate."""
    present = [m for m in members if m.state in THERE]
    coordinates = {m.name: m.coordinate for m in present if m.coordinate is not None}
    if not coordinates:
        raise SbonError("nobody-placed", "no node has a coordinate yet", hint="ask again in some seconds")
    points, shown = principal_axes(list(coordinates.values()))
    located = [m for m in present if m.name in coordinates]
    map_points = tuple(
        MapPoint(m.name, round(float(x), 3), round(float(y), 3), m.height_ms or 0.0, m.load_ms or 0.0, m.load_per_core)
        for m, (x, y) in zip(located, points, strict=True)
    )
    return Map(map_points, round(shown, 4), tuple(m.name for m in present if m.coordinate is None))


def save(network_map: Map, file: Path) -> None:
    """Draw the map: larger points are higher, darker points more loaded.

    Raises :class:`SbonError` ``input-missing`` without matplotlib, and ``not-written``.
    """
    figure = matplotlib_figure()()
    points = network_map.places
    axes = figure.add_subplot()
    heights, loads = [point.height_ms for point in points], [point.load_per_core or 0.0 for point in points]
    xs, ys = [point.x_ms for point in points], [point.y_ms for point in points]
    dots = axes.scatter(
        xs, ys, s=[20 + 4 * height for height in heights], c=loads, cmap="viridis_r", vmin=0.0, vmax=max(*loads, 1.0)
    )
    figure.colorbar(dots, label="load (runnable processes a core)")
    axes.set(
        xlabel="ms",
        ylabel="ms",
        title=f"{counted(len(points), 'node')} in the cost space; size: height; {shown_share(network_map)}",
    )
    axes.set_aspect("equal", adjustable="datalim")
    label(figure, axes, [(point.name, point.x_ms, point.y_ms) for point in points])
    write_figure(figure, file)


def check_suffix(file: Path | None) -> None:
    """Raise a usage error for an unsupported picture format."""
    if file is not None and file.suffix.lower() not in SUFFIXES:
        raise click.UsageError(f"--out: {file.name!r} does not end in {', '.join(SUFFIXES)}")


def write_figure(figure: Any, file: Path) -> None:
    """Write the figure; raise :class:`SbonError` ``not-written`` on failure."""
    with written(file):
        figure.savefig(file, dpi=120, bbox_inches="tight")


def shown_share(network_map: Map) -> str:
    return f"two axes show {network_map.shown:.0%} of the spread"


# -- Points in a plane drawn with characters, each with its name ------------------------------------------------------

ROWS = 24
NARROWEST = 24
CELL_ASPECT = 2.0
"""Ratio of a character's height to its width."""
SCALE_COLUMNS = 20
LISTED = 3
"""Most lines of names without space."""

Cell = tuple[int, int]
"""Row and column of a character."""


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


# -- Names beside points in a picture: within the frame, and without overlaps -----------------------------------------

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


def label(figure: Any, axes: Any, points: Sequence[Point], *, size: float = 7.0) -> None:
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
