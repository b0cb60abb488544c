"""Options that several experiments and benchmarks share; each is written once, and typed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from sbon_cli.options.types import Folder, Seeds
from sbon_cli.terminal.output import json_option

F = TypeVar("F", bound=Callable[..., Any])
Command = Callable[..., None]

TOPOLOGIES = "ts100, ts208, ts300, ts592, ts1000, ts1064, ts1550, ts3000, ts10000, edge-fog-cloud, geometric"
"""Names in sbon_lab.experiments.harness.topologies, which help does not import."""

_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


def repeated(
    flag: str, parameter: str, type_: click.ParamType[Any], help_: str, *, metavar: str | None = "N"
) -> Callable[[F], F]:
    """Return an option that may be repeated; the command gets a tuple."""
    return click.option(flag, parameter, multiple=True, type=type_, metavar=metavar, help=help_)


def seed_option(of: str) -> Callable[[F], F]:
    """Return ``--seed``, 1 by default; ``of`` says what it decides."""
    return click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help=f"Seed of {of}.")


def rtt_files_option(missing: str = "NaN") -> Callable[[F], F]:
    """Return ``--data``, which may be repeated; ``missing`` says which times count as missing."""
    form = f"an array rtt_ms, [n, n] or [t, n, n], milliseconds, {missing} where missing"
    return click.option("--data", multiple=True, type=_EXISTING, metavar="FILE.npz", help=f"Round-trip times: {form}; repeated.")


def area_file_option(command: F) -> F:
    """Add ``--data``, the file of an emulated area."""
    help_ = "Round-trip times, as for cluster up --latency: the first nodes of it."
    return click.option("--data", required=True, type=_EXISTING, metavar="FILE", help=help_)(command)


def suite_queries_option(flag: str, parameter: str, default: str) -> Callable[[F], F]:
    """Return an option for names of queries of the suite; ``default`` says which run without it."""
    return click.option(flag, "-q", parameter, multiple=True, metavar="NAME", help=f"A query of the suite, repeated; {default}.")


def out_option(command: F) -> F:
    """Add ``--out``, the folder for pictures."""
    return click.option("--out", type=Folder(), metavar="DIR", help="Write pictures and the JSON there.")(command)


def placement_options(queries: int, seeds: str) -> Callable[[Command], Command]:
    """Return the options that placement experiments share; ``queries`` and ``seeds`` are defaults."""
    dump = "Write every instance and placement there, as lines of JSON, for other programs to check."
    of_seeds = "Seeds of network, coordinates and queries: 1,2,5 or 1-10."
    options: tuple[Callable[[Command], Command], ...] = (
        rtt_files_option(),
        click.option("--topology", multiple=True, metavar="NAME", help=f"{TOPOLOGIES}; repeated."),
        click.option(
            "--queries", type=click.IntRange(1, 100_000), default=queries, show_default=True, help="Number for each seed."
        ),
        click.option("--seeds", type=Seeds(), default=seeds, show_default=True, help=of_seeds),
        out_option,
        click.option("--dump", type=Folder(), metavar="DIR", help=dump),
        json_option,
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
