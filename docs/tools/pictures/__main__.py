"""Draws the pictures of docs/concepts.md from the daemon's own code: ``make pictures``.

Their contents are computed anew (``world.py``, and the rule for event time); nothing is drawn by hand. Texts stay text,
and colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib
from frames import frames
from matplotlib.figure import Figure
from operators import operators
from space import placement, settling
from watermarks import watermarks
from world import world

OUT = Path(__file__).resolve().parents[3] / "docs" / "pictures"
DARK = {
    "#222222": "#e6e6e6",
    "#ffffff": "#1e2129",
    "#1f6fb2": "#6db3f2",
    "#2a7f3f": "#6fcf87",
    "#c0392b": "#ff8a7a",
    "#dddddd": "#4a4f5b",
    "#edf2f8": "#2a303c",
    "#777777": "#a6a6a6",
}
"""Each colour that is drawn with, and what it is where the reader's scheme is dark."""
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sbon",
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9,
    "text.color": "#222222",
    "axes.edgecolor": "#777777",
    "axes.labelcolor": "#222222",
    "axes.titlecolor": "#222222",
    "axes.titlesize": 10,
    "xtick.color": "#222222",
    "ytick.color": "#222222",
    "legend.frameon": False,
    "figure.facecolor": "#ffffff",
    "axes.facecolor": "#ffffff",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    shown = world()
    with matplotlib.rc_context(SETTINGS):
        drawn = {
            "coordinates": settling(shown),
            "frames": frames(),
            "operators": operators(shown.plan),
            "placement": placement(shown.placement),
            "watermarks": watermarks(),
        }
        for name, figure in drawn.items():
            (out / f"{name}.svg").write_text(svg(figure), encoding="utf-8")


def svg(figure: Figure) -> str:
    """Without a date and with fewer digits, so that the same picture is the same file."""
    written: Any = io.StringIO()
    figure.savefig(written, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    text = re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", written.getvalue())
    rules = (
        f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>"
    return re.sub(r"(<svg [^>]*>)", lambda opened: f"{opened[0]}\n {style}", text, count=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
