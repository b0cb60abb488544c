"""``sbon map``: a picture of the cost space, on the terminal and as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.markup import escape

from sbon import SbonError
from sbon.model import MemberInfo
from sbon_cli.client import Client
from sbon_cli.commands.nodes.map_text import drawn
from sbon_cli.commands.nodes.picture_labels import label
from sbon_cli.terminal.output import counted, err, json_option, out, print_json, reports_errors, say
from sbon_node.extras import matplotlib_figure
from sbon_node.space.projection import principal_axes

SUFFIXES = (".png", ".svg", ".pdf")
THERE = ("alive", "suspect")


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
@json_option
@click.pass_obj
@reports_errors
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
    try:
        figure.savefig(file, dpi=120, bbox_inches="tight")
    except OSError as error:
        raise SbonError("not-written", f"cannot be written: {error.strerror}", where=str(file)) from error


def shown_share(network_map: Map) -> str:
    return f"two axes show {network_map.shown:.0%} of the spread"
