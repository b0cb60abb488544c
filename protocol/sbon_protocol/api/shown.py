"""Answers as people read them: records in a line or, printed, field by field; lists as tables; both as HTML for notebooks."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

import msgspec

T = TypeVar("T", bound="Shown")
Columns = Mapping[str, str]

WIDTH = 100
"""Characters of a line; what is longer is broken into a line for each part."""
MOST = 10
"""Elements of a sequence or mapping that a record shows."""
MOST_ROWS = 60
"""Rows that a table shows."""
TEXT, CELL = 80, 48
"""Characters of a text that a record shows, and a cell of a table."""


class Shown(msgspec.Struct, frozen=True):
    """A record whose ``repr`` is one line, and whose text is broken into lines; both leave out defaults."""

    COLUMNS: ClassVar[Columns] = {}
    """Columns of a table of such records, and parts of a line for a large one: headings, and the attributes below them."""

    def __repr__(self) -> str:
        flat = _flat(self)
        return flat if len(flat) <= WIDTH else _line(self)

    def __str__(self) -> str:
        return _text(self, 0)

    def _repr_html_(self) -> str:
        rows = ((name.removesuffix("="), _text(value, 0)) for name, value in _parts(self))
        cells = "".join(f"<tr><th>{escape(name)}</th><td><pre>{escape(text)}</pre></td></tr>" for name, text in rows)
        return f"<table><caption>{type(self).__name__}</caption>{cells}</table>"


class Listing(list[T]):
    """A list of records that is shown as a table."""

    def __repr__(self) -> str:
        if not self:
            return "[]"
        headings, rows = self._table()
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (headings, *rows)]
        return "\n".join([*lines, *self._rest()])

    def _repr_html_(self) -> str:
        headings, rows = self._table()
        head = "".join(f"<th>{escape(one)}</th>" for one in headings)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        rest = "".join(f"<p>{escape(line)}</p>" for line in self._rest())
        return f"<table><tr>{head}</tr>{body}</table>{rest}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        columns = self[0].COLUMNS if self else {}
        columns = columns or {name: name for name in (self[0].__struct_fields__ if self else ())}
        shown = self[:MOST_ROWS]
        return list(columns), [[_cell(attrgetter(path)(one)) for path in columns.values()] for one in shown]

    def _rest(self) -> Iterator[str]:
        if len(self) > MOST_ROWS:
            yield f"… {len(self) - MOST_ROWS:,} more"


def _line(record: Shown) -> str:
    """Return ``<QueryInfo id=errors, state=running, rows=1204>``: the columns of a record, or its first parts."""
    columns = [(f"{name}=", attrgetter(path)(record)) for name, path in record.COLUMNS.items()] or _parts(record)
    text = ", ".join(name + cell for name, part in columns if (cell := _cell(part)) not in ("", "-"))
    return f"<{type(record).__name__} {text if len(text) <= WIDTH else f'{text[: WIDTH - 1]}…'}>"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) if all(isinstance(one, str) for one in value) else f"{len(value)}"
    text = " ".join(str(value).split())
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


def _text(value: object, indent: int) -> str:
    flat = _flat(value)
    parts = list(_parts(value))
    if not parts or indent + len(flat) <= WIDTH:
        return flat
    opening, closing = _brackets(value)
    pad = " " * (indent + 4)
    lines = [f"{pad}{name}{_text(part, indent + 4)}," for name, part in parts]
    return "\n".join([opening, *lines, *(f"{pad}{line}" for line in _left_out(value)), f"{' ' * indent}{closing}"])


def _flat(value: object) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= TEXT else f"{value[: TEXT - 1]}…")
    if not isinstance(value, msgspec.Struct | Mapping | list | tuple):
        return repr(value)
    opening, closing = _brackets(value)
    return opening + ", ".join([*(f"{name}{_flat(part)}" for name, part in _parts(value)), *_left_out(value)]) + closing


def _parts(value: object) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value that are shown, each after what is written before it; none of a text or a number."""
    if isinstance(value, msgspec.Struct):
        for one in msgspec.structs.fields(value):
            default = one.default if one.default_factory is msgspec.NODEFAULT else one.default_factory()
            if (part := getattr(value, one.name)) != default:
                yield f"{one.name}=", part
    elif isinstance(value, Mapping):
        for key in list(value)[:MOST]:
            yield f"{key!r}: ", value[key]
    elif isinstance(value, list | tuple):
        for part in value[:MOST]:
            yield "", part


def _left_out(value: object) -> Sequence[str]:
    left = len(value) - MOST if isinstance(value, Mapping | list | tuple) else 0
    return [f"… {left:,} more"] if left > 0 else []


def _brackets(value: object) -> tuple[str, str]:
    if isinstance(value, msgspec.Struct):
        return f"{type(value).__name__}(", ")"
    return ("{", "}") if isinstance(value, Mapping) else ("[", "]")
