"""Types of options beyond those of click, and durations as flags accept them."""

import importlib
import math
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from sbon_protocol.errors import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

MAX_SEEDS = 1000


class Number(click.FloatRange):
    """A number within a range. NaN is in none, though it is neither below nor above any."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class Choice(click.Choice[str]):
    """A choice whose refusal suggests names that are spelt alike."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        refusal, near = super().get_invalid_choice_message(value, ctx), did_you_mean(str(value), self.choices)
        return f"{refusal} {near[:1].upper()}{near[1:]}".rstrip()


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


def names_option(flag: str, parameter: str, type_: click.ParamType[str], help_: str) -> Callable[[F], F]:
    """Return an option that takes a name and may be repeated."""
    return click.option(flag, parameter, multiple=True, type=type_, metavar="NAME", help=help_)


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


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_of(milliseconds: int) -> str:
    """Return the shortest form of a duration that flags accept: ``500ms``, ``90s``, ``1h``."""
    unit = next((unit for unit in ("d", "h", "m", "s") if milliseconds and milliseconds % _UNITS_MS[unit] == 0), "ms")
    return f"{milliseconds // _UNITS_MS[unit]}{unit}"


def milliseconds_of(duration: str, flag: str) -> int:
    """Convert ``500ms``, ``10s``, ``5m``, ``1h``, ``1d``; raise a usage error that names the flag."""
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*(ms|s|m|min|h|d)\s*", duration, re.ASCII)
    if not match:
        raise click.UsageError(f"{flag}: {duration!r} is not a duration: write 500ms, 10s, 5m, 1h or 1d")
    return round(float(match[1]) * _UNITS_MS[match[2]])
