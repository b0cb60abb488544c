"""Lengths of ``window(time, length, slide, start)`` and ``session_window(time, gap)`` in milliseconds."""

from __future__ import annotations

from sqlglot import exp

from sbon_node.planning.sql.syntax.dialect import call_name, error_at
from sbon_node.planning.sql.syntax.durations import MAX_MS, literal_ms
from sbon_protocol.errors import SbonError

MOST_AT_ONCE = 100
"""Most windows per row; the row's state, and its rows downstream, multiply by this number."""

_DAY_MS = 86_400_000
_UNITS = "write a number of weeks, days, hours, minutes, seconds or milliseconds: '30 days'"


def lengths_of_window(clean: str, call: exp.Expr) -> tuple[int, int, int]:
    """Return length, slide and start. Raises ``bad-window`` with the wrong argument."""
    lengths = call.expressions[1:]
    name = call_name(call)
    if not lengths or len(lengths) > (3 if name == "window" else 1):
        takes = "a length, a slide and a start" if name == "window" else "one length, that of the gap"
        hint = f"write {name}(event time, '1 hour')"
        raise error_at("bad-window", f"{name} takes the event time and {takes}", clean, call, hint=hint)
    size = _length(clean, lengths[0])
    slide = _length(clean, lengths[1]) if len(lengths) > 1 else size
    start = _length(clean, lengths[2]) if len(lengths) > 2 else 0
    if size < 1:
        raise error_at("bad-window", "a window is longer than nothing", clean, lengths[0], hint="write '1 hour'")
    if slide < 1:
        raise error_at(
            "bad-window", "a slide is longer than nothing", clean, lengths[1], hint="write at most the window's length"
        )
    if slide > size:
        hint = "slide by at most the window's length"
        raise error_at("bad-window", "rows between the windows would be lost", clean, lengths[1], hint=hint)
    if not 0 <= start < slide:
        raise error_at("bad-window", "a start is from 0 on and less than the slide", clean, lengths[2], hint="leave it out")
    if -(-size // slide) > MOST_AT_ONCE:
        message = f"{-(-size // slide)} windows would hold each row, {MOST_AT_ONCE} may"
        raise error_at("bad-window", message, clean, lengths[1], hint=f"slide by '{_in_words(-(-size // MOST_AT_ONCE))}' or more")
    return size, slide, start


def _length(clean: str, node: exp.Expr) -> int:
    length = literal_ms(node)
    if length is None:
        raise _no_length(clean, node)
    return length


def _no_length(clean: str, node: exp.Expr) -> SbonError:
    written = f"{node.this.name if isinstance(node, exp.Interval) else node.name} {node.text('unit')}".lower()
    if "month" in written or "year" in written:
        return error_at("bad-window", "months and years differ in length", clean, node, hint=_UNITS)
    message = f"no length of time, or one of more than {MAX_MS // _DAY_MS} days"
    return error_at("bad-window", message, clean, node, hint=_UNITS)


def _in_words(ms: int) -> str:
    return f"{-(-ms // 1000)} seconds" if ms >= 1000 else f"{ms} milliseconds"
