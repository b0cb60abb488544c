"""Types of options beyond those of click, and durations as flags accept them."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from sbon_protocol.errors import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


class Number(click.FloatRange):
    """A number within a range. NaN is in none, though it is neither below nor above any."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def out_option(parameter: str, help_: str) -> Callable[[F], F]:
    """Return the option ``--out``, a file that the command writes."""
    return click.option("--out", parameter, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help=help_)


class Choice(click.Choice[str]):
    """A choice whose refusal suggests names that are spelt alike."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        refusal, near = super().get_invalid_choice_message(value, ctx), did_you_mean(str(value), self.choices)
        return f"{refusal} {near[:1].upper()}{near[1:]}".rstrip()


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
