"""Durations in SQL: ``'1 hour 30 minutes'``, ``INTERVAL '90' MINUTE``, ``INTERVAL 5 SECONDS``."""

import re
from decimal import Decimal

from sqlglot import exp

_UNITS_MS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 7 * 86_400_000}
_PART = re.compile(r"\s*(-?\d{1,9}(?:\.\d{1,3})?)\s*([a-z]+)\s*")
MAX_MS = 3650 * 86_400_000


def parse_ms(text: str) -> int | None:
    """Return the milliseconds of a text such as ``1 hour 30 minutes``.

    None if it is no duration or has no fixed length (months).
    """
    lower = text.lower().strip().removeprefix("interval").strip()
    at, total = 0, Decimal(0)
    while at < len(lower):
        match = _PART.match(lower, at)
        if match is None or (unit := _UNITS_MS.get(match[2].removesuffix("s"))) is None:
            return None
        total += Decimal(match[1]) * unit
        at = match.end()
    return int(total) if lower and total == int(total) and abs(total) <= MAX_MS else None


def interval_ms(node: exp.Expr) -> int | None:
    """Return the milliseconds of an ``INTERVAL`` of fixed length; None for other expressions."""
    bare = node.unnest()
    if isinstance(bare, exp.Neg):
        inner = interval_ms(bare.this)
        return -inner if inner is not None else None
    if not isinstance(bare, exp.Interval) or not isinstance(bare.this, exp.Literal):
        return None
    unit = bare.args.get("unit")
    if unit is None:
        return parse_ms(bare.this.name)
    return parse_ms(f"{bare.this.name} {unit.name}") if isinstance(unit, exp.Var) else None


def literal_ms(node: exp.Expr) -> int | None:
    """Return the milliseconds of a string literal or an interval, as ``window`` accepts them."""
    bare = node.unnest()
    if isinstance(bare, exp.Literal) and bare.is_string:
        return parse_ms(bare.name)
    return interval_ms(bare)


def sql_interval(ms: int) -> exp.Interval:
    """Return the exact interval of ``ms`` milliseconds."""
    seconds, rest = divmod(abs(ms), 1000)
    if rest:
        return exp.Interval(this=exp.Literal.string(str(ms)), unit=exp.Var(this="MILLISECOND"))
    sign = "-" if ms < 0 else ""
    return exp.Interval(this=exp.Literal.string(f"{sign}{seconds}"), unit=exp.Var(this="SECOND"))
