"""Functions that are evaluated on sampled rows, under Spark's names."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from sbon_node.sql.sampling.values import DAY_US, EPOCH, Kind, as_datetime


class Function(NamedTuple):
    """A function of one row: the kinds it takes, the kind it gives, and the allowed numbers of arguments."""

    of: Callable[..., Any]
    takes: tuple[Kind, ...]
    gives: Kind
    counts: tuple[int, ...]


_WIDTHS_US = {
    "millisecond": 1000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": DAY_US, "dd": DAY_US,
}  # fmt: skip


def _truncated(unit: str, micros: int) -> int:
    width = _WIDTHS_US.get(unit.lower())
    if width is not None:
        return micros - micros % width
    begin = as_datetime(micros).replace(hour=0, minute=0, second=0, microsecond=0)
    match unit.lower():
        case "week":
            return micros - micros % DAY_US - begin.weekday() * DAY_US
        case "month" | "mon" | "mm":
            begin = begin.replace(day=1)
        case "year" | "yyyy" | "yy":
            begin = begin.replace(month=1, day=1)
        case _:
            raise ValueError(unit)
    return (begin - EPOCH).days * DAY_US


def _of_number(of: Callable[..., Any]) -> Function:
    return Function(of, ("number",), "number", (1,))


def _of_text(of: Callable[..., Any], gives: Kind = "text") -> Function:
    return Function(of, ("text",), gives, (1,))


def _of_texts(of: Callable[..., Any]) -> Function:
    return Function(of, ("text", "text"), "boolean", (2,))


def _of_time(of: Callable[[datetime], int]) -> Function:
    return Function(lambda micros: of(as_datetime(micros)), ("timestamp",), "number", (1,))


def _substring(text: str, start: int, length: int = 2**31) -> str:
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    return text[max(0, int(first)) : max(0, int(first + length))]


def _rounded(value: float, digits: int = 0) -> float:
    return round(value, int(digits))


_substring_of = Function(_substring, ("text", "number", "number"), "text", (2, 3))
_length = _of_text(len, "number")

FUNCTIONS: dict[str, Function] = {
    "abs": _of_number(abs),
    "ceil": _of_number(math.ceil),
    "ceiling": _of_number(math.ceil),
    "floor": _of_number(math.floor),
    "sqrt": _of_number(math.sqrt),
    "round": Function(_rounded, ("number", "number"), "number", (1, 2)),
    "mod": Function(math.fmod, ("number", "number"), "number", (2,)),
    "pmod": Function(lambda a, b: a % abs(b), ("number", "number"), "number", (2,)),
    "lower": _of_text(str.lower),
    "lcase": _of_text(str.lower),
    "upper": _of_text(str.upper),
    "ucase": _of_text(str.upper),
    "trim": _of_text(lambda text: text.strip(" ")),
    "reverse": _of_text(lambda text: text[::-1]),
    "length": _length,
    "char_length": _length,
    "len": _length,
    "substring": _substring_of,
    "substr": _substring_of,
    "left": Function(lambda text, n: text[: max(0, int(n))], ("text", "number"), "text", (2,)),
    "concat": Function(lambda *texts: "".join(texts), ("text",) * 4, "text", (1, 2, 3, 4)),
    "dpipe": Function(lambda one, two: one + two, ("text", "text"), "text", (2,)),
    "startswith": _of_texts(str.startswith),
    "endswith": _of_texts(str.endswith),
    "contains": _of_texts(lambda text, part: part in text),
    "date_trunc": Function(_truncated, ("text", "timestamp"), "timestamp", (2,)),
    "year": _of_time(lambda time: time.year),
    "month": _of_time(lambda time: time.month),
    "day": _of_time(lambda time: time.day),
    "dayofmonth": _of_time(lambda time: time.day),
    "dayofweek": _of_time(lambda time: time.isoweekday() % 7 + 1),
    "weekday": _of_time(datetime.weekday),
    "hour": _of_time(lambda time: time.hour),
    "minute": _of_time(lambda time: time.minute),
    "second": _of_time(lambda time: time.second),
    "to_date": Function(lambda micros: micros // DAY_US, ("timestamp",), "date", (1,)),
}
