"""Options that several experiments and benchmarks share; each is written once, and typed."""

import importlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from sbon_cli.terminal.output import json_option

F = TypeVar("F", bound=Callable[..., Any])
Command = Callable[..., None]

TOPOLOGIES = "ts100, ts208, ts300, ts592, ts1000, ts1064, ts1550, ts3000, ts10000, edge-fog-cloud, geometric"
"""Names in sbon_lab.experiments.harness.topologies, which help does not import."""

_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


MAX_SEEDS = 1000


class KnownName(click.ParamType[str]):
    """A name in the collection at ``module:NAME``, which is imported when a value is given, not for help."""

    name = "name"

    def __init__(self, known: str) -> None:
        self._known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        module, _, attribute = self._known.partition(":")
        known = getattr(importlib.import_module(module), attribute)
        if value not in known:
            self.fail(f"{value!r} is none of {', '.join(known)}", param, ctx)
        return str(value)


class Seeds(click.ParamType[tuple[int, ...]]):
    """Seeds as ``1,2,5`` or ``1-10``."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        seeds: list[int] = []
        try:
            for part in str(value).split(","):
                first, _, last = part.partition("-")
                seeds += islice(range(int(first), int(last or first) + 1), MAX_SEEDS + 1)
        except ValueError:
            seeds = []
        if not 0 < len(seeds) <= MAX_SEEDS:
            self.fail(f"{value!r} is no list of at most {MAX_SEEDS:,} seeds such as 1,2,5 or 1-10", param, ctx)
        return tuple(dict.fromkeys(seeds))


class Folder(click.Path):
    """A folder for output, created if missing; an impossible folder is rejected before there is output."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.fail(f"{value} cannot be made: {error.strerror}", param, ctx)
        super().convert(path, param, ctx)
        return path


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
