"""``sbon experiment ants``: placement by ants beside exact, centralized and random placement."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import click

from sbon_cli.commands.experiments.options import placement_options
from sbon_cli.commands.experiments.placement import run_experiment
from sbon_cli.options.types import KnownName, names_option
from sbon_cli.terminal.output import reports_errors


@click.command()
@placement_options(100, "1-3")
@names_option(
    "--part",
    "parts",
    KnownName("sbon_node.experiments.ants.figures:PARTS"),
    "2a, 2b, 3a, 3b, 4, table1, reuse or queue; repeated, all by default.",
)
@reports_errors
def ants(out: Path | None, json_: bool, parts: tuple[str, ...], **options: Any) -> None:
    """ANTS's Figures 2, 3 and 4, Table 1 and reuse: latency by ants, beside the exact optimum and others; the queueing model."""
    module: Any = importlib.import_module("sbon_node.experiments.ants.figures")
    options["parts"] = parts or module.PARTS
    run_experiment("ants.figures", out, json_, options)
