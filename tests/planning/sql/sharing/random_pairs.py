"""Pairs of queries at random, of which the first is often contained in the second, and often nearly so."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.planning.sql.random_queries import Draw

_COMPARED = {
    "a": ("0", "1", "2", "3"),
    "b": ("0", "1", "2", "-1"),
    "k": ("0", "1", "1.5", "3"),
    "d": ("0", "1.5", "-0.5"),
    "s": ("''", "'x'", "'xy'"),
    "ts": ("TIMESTAMP '2013-01-01 01:00:00'", "'2013-01-01 02:15:00'", "DATE '2013-01-01'"),
}
_OPERATORS = ("=", "<", "<=", ">", ">=", "<>", ">", "<=")
_OTHERS = (
    "mod(a, 3) = 1", "a = b", "a < b", "s LIKE 'x%'", "coalesce(a, 0) = 1", "a IS NULL", "a <=> b", "upper(s) = 'X'",
)  # fmt: skip
_OUTPUTS = ("a", "b", "k", "d", "s", "ts", "a > 1", "upper(s)", "a = b", "coalesce(a, b)", "a IS NULL", "s LIKE 'x%'")
_AGGREGATES = (
    "count(*)", "count(a)", "sum(a)", "min(b)", "max(a)", "max(s)", "avg(a)", "sum(k)", "count_if(a > 1)", "bool_or(a > b)",
    "min(ts)", "sum(a) + count(*)", "stddev(a)", "max(a) - min(b)",
)  # fmt: skip
_DIVIDED = ("count(*)", "count(a)", "sum(a)", "min(b)", "max(a)", "max(s)", "count_if(a > 1)", "bool_or(a > b)", "min(ts)")
_WINDOWS = (
    "window(ts, '15 minutes')", "window(ts, '30 minutes')", "window(ts, '1 hour')", "window(ts, '1 hour')",
    "window(ts, '1 hour', '30 minutes')", "window(ts, '90 minutes', '30 minutes')",
    "window(ts, '1 hour', '1 hour', '15 minutes')",
    "window(ts, '30 minutes', '30 minutes', '10 minutes')", "window(ts, '2 hours')", "session_window(ts, '30 minutes')",
    "window(ts, '1 hour', '1 hour', '30 minutes')",
)  # fmt: skip
_KEYS = ("a", "b", "s", "d", "mod(a, 2)", "upper(s)")
_BOUNDS = (
    "y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts",
    "y.ts BETWEEN x.ts - INTERVAL '2' HOUR AND x.ts",
    "y.ts >= x.ts - INTERVAL '30' MINUTE AND y.ts <= x.ts",
    "y.ts > x.ts - INTERVAL '1' HOUR AND y.ts < x.ts + INTERVAL '30' MINUTE",
    "y.ts BETWEEN x.ts - INTERVAL '90' MINUTE AND x.ts + INTERVAL '1' HOUR",
)  # fmt: skip


def _comparison(draw: Draw, name: str, prefix: str = "") -> str:
    literals = st.sampled_from(_COMPARED[name])
    of = prefix + name
    shape = draw(st.sampled_from(["compare"] * 5 + ["in", "not in", "between", "not null", "or"]))
    if shape in ("in", "not in"):
        return f"{of} {shape.upper()} ({draw(literals)}, {draw(literals)})"
    if shape == "between":
        return f"{of} BETWEEN {draw(literals)} AND {draw(literals)}"
    if shape == "not null":
        return f"{of} IS NOT NULL"
    if shape == "or":
        other = draw(st.sampled_from(sorted(_COMPARED)))
        return f"({_plain(draw, of, literals)} OR {_plain(draw, prefix + other, st.sampled_from(_COMPARED[other]))})"
    return _plain(draw, of, literals)


def _plain(draw: Draw, of: str, literals: st.SearchStrategy[str]) -> str:
    if draw(st.integers(0, 5)) == 0:
        return f"{draw(literals)} {draw(st.sampled_from(_OPERATORS))} {of}"
    return f"{of} {draw(st.sampled_from(_OPERATORS))} {draw(literals)}"


def _conditions(draw: Draw, names: tuple[str, ...], prefix: str = "") -> tuple[list[str], list[str]]:
    """Conditions of both queries, about the same columns."""
    wanted, offered = list[str](), list[str]()
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(names))
        offered.append(_comparison(draw, name, prefix))
        wanted.append(offered[-1] if draw(st.integers(0, 2)) else _comparison(draw, name, prefix))
    if not prefix and draw(st.integers(0, 3)) == 0:
        wanted.append(draw(st.sampled_from(_OTHERS)))
        if draw(st.booleans()):
            offered.append(wanted[-1])
    if draw(st.booleans()):
        wanted.append(_comparison(draw, draw(st.sampled_from(names)), prefix))
    if draw(st.integers(0, 9)) == 9 and wanted:
        wanted.pop(0)
    return wanted, offered


def _where(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _listed(expressions: list[str], stem: str) -> str:
    return ", ".join(f"{one} AS {stem}{at}" for at, one in enumerate(expressions))


def _some(draw: Draw, of: tuple[str, ...], least: int, most: int) -> list[str]:
    return draw(st.lists(st.sampled_from(of), min_size=least, max_size=most, unique=True))  # type: ignore[no-any-return]


def _plain_pair(draw: Draw) -> tuple[str, str]:
    wanted, offered = _conditions(draw, ("a", "a", "b", "k", "d", "s", "ts"))
    outputs = _some(draw, _OUTPUTS, 6, len(_OUTPUTS))
    fewer = _some(draw, tuple(outputs), 1, 3) if draw(st.integers(0, 5)) else _some(draw, _OUTPUTS, 1, 3)
    return (
        f"SELECT {_listed(fewer, 'w')} FROM u{_where(wanted)}",
        f"SELECT {_listed(outputs, 'o')} FROM u{_where(offered)}",
    )


def _grouped(
    window: str, keys: list[str], aggregates: list[str], below: str, stem: str, having: list[str], ends: list[str]
) -> str:
    piece = "session_window" if window.startswith("session") else "window"
    listed = [f"{piece}.{end} AS {stem}{end[0]}" for end in ends]
    listed += [f"{key} AS {stem}k{at}" for at, key in enumerate(keys)]
    listed += [f"{one} AS {stem}g{at}" for at, one in enumerate(aggregates)]
    return (
        f"SELECT {', '.join(listed)} FROM {below} GROUP BY {', '.join([window, *keys])}"
        f"{' HAVING ' + ' AND '.join(having) if having else ''}"
    )


def _grouped_pair(draw: Draw) -> tuple[str, str]:
    """Equal windows with other aggregates and filters, or windows of which one may divide the other."""
    keys = _some(draw, _KEYS[:4], 0, 3) if draw(st.integers(0, 3)) else _some(draw, _KEYS, 0, 3)
    fewer = [key for key in keys if draw(st.integers(0, 3))]
    if draw(st.integers(0, 9)) == 9:
        fewer = [*fewer, *[key for key in _KEYS[4:] if key not in fewer][:1]]
    wanted, offered = _conditions(draw, tuple(key for key in keys if key in _COMPARED) or ("a",))
    having = [[f"count(*) > {draw(st.integers(0, 3))}"] if draw(st.integers(0, 2)) == 0 else [] for _ in range(2)]
    if draw(st.booleans()):
        aggregates = _some(draw, _AGGREGATES, 2, 7)
        some = _some(draw, tuple(aggregates), 1, 3)
        coarse = fine = draw(st.sampled_from(_WINDOWS))
        fewer = keys if draw(st.integers(0, 3)) else fewer
        having[1] = having[1] if draw(st.integers(0, 3)) == 3 else []
    else:
        aggregates = _some(draw, _DIVIDED, 3, len(_DIVIDED))
        some = _some(draw, tuple(aggregates) if draw(st.integers(0, 3)) else _AGGREGATES, 1, 2)
        coarse, fine = draw(st.sampled_from(_WINDOWS)), draw(st.sampled_from((*_WINDOWS[:3], *_WINDOWS[:1] * 3)))
        having[1] = having[1] if draw(st.integers(0, 9)) == 9 else []
    ends = [_some(draw, ("start", "end"), 1, 2) for _ in range(2)]
    return (
        _grouped(coarse, fewer, some, f"u{_where(wanted)}", "w", having[0], ends[0]),
        _grouped(fine, keys, aggregates, f"u{_where(offered)}", "o", having[1], ends[1]),
    )


def _joined_pair(draw: Draw) -> tuple[str, str]:
    kind = draw(st.sampled_from(["JOIN", "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN"]))
    sides = ("x",) if "SEMI" in kind else ("x", "y")
    columns = tuple(f"{side}.{name}" for side in sides for name in ("a", "b", "k", "s", "ts", "d"))
    more = tuple(f"coalesce({side}.a, 0)" for side in sides)
    outputs = _some(draw, (*columns, *more), 5, 12)
    fewer = _some(draw, tuple(outputs), 1, 3)
    bounds = [draw(st.sampled_from(_BOUNDS)) for _ in range(2)]
    if draw(st.booleans()):
        bounds[0] = bounds[1]
    wanted, offered = _conditions(draw, ("a", "b", "k"), f"{draw(st.sampled_from(sides))}.")
    on = "x.a = y.a"
    swapped = kind == "JOIN" and draw(st.booleans())
    sources = ["u x", "v y"][:: -1 if swapped else 1]
    return (
        f"SELECT {_listed(fewer, 'w')} FROM {sources[0]} {kind} {sources[1]} ON {on} AND {bounds[0]}{_where(wanted)}",
        f"SELECT {_listed(outputs, 'o')} FROM u x {kind} v y ON {on} AND {bounds[1]}{_where(offered)}",
    )


SHAPES: dict[str, Any] = {"plain": _plain_pair, "grouped": _grouped_pair, "joined": _joined_pair}


@st.composite
def pairs(draw: st.DrawFn, shape: str = "") -> tuple[str, str]:
    """A wanted query and an offered one."""
    made: tuple[str, str] = SHAPES[shape or draw(st.sampled_from(["plain", "grouped", "grouped", "joined"]))](draw)
    return made
