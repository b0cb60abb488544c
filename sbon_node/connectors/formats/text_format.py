"""Text formats, and their options, shared by ``tail``, ``http``, ``mqtt`` and files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from msgspec import Meta

from sbon_node.connectors.formats.blocks import Parsed, TextFormat
from sbon_node.connectors.formats.csv import CsvRows
from sbon_node.connectors.formats.lines import LineRows, NdjsonRows
from sbon_node.connectors.formats.times import check_timestamp_format
from sbon_protocol.errors import SbonError

RowFormat = Literal["csv", "ndjson", "text"]

TEXT_SUFFIXES: dict[str, Literal["csv", "ndjson"]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
}


def format_unknown(path: Path) -> SbonError:
    """Return the refusal of a file whose suffix and options name no format."""
    message = f"the name {path.name} does not determine the format"
    return SbonError("bad-option", message, where="options.format", hint="set format to csv, ndjson or parquet")


def default_delimiter(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


Header = Annotated[bool, Meta(description="CSV: the first line names the columns; else they are the stream's, in order")]
Delimiter = Annotated[
    str, Meta(pattern=r'^[^"\r\n]?$', description="CSV: one character between columns; a comma, or a tab for .tsv")
]
Null = Annotated[
    str, Meta(max_length=64, description="CSV: unquoted text that means NULL; elsewhere than in texts, empty does too")
]
TimestampFormat = Annotated[
    str, Meta(max_length=64, description="times as of strptime, or epoch_s or epoch_ms; ISO 8601 by default; UTC without zone")
]
Pattern = Annotated[
    str, Meta(max_length=4096, description="text: an RE2 expression whose named groups are columns; the column line is all of it")
]
Stamp = Annotated[bool, Meta(description="the event time is when the row arrived here, and is not in the text")]

Added = Mapping[str, Callable[[int], Any]]
"""Maps each added column to a function that makes an array of so many values."""


def text_format(
    kind: RowFormat,
    schema: pa.Schema,
    *,
    header: bool = True,
    delimiter: str = "",
    null: str = "",
    timestamp_format: str = "",
    pattern: str = "",
    added: Added | None = None,
) -> TextFormat:
    """Return the format that the options describe. Raises :class:`SbonError` ``bad-option``, ``missing-columns``."""
    check_timestamp_format(timestamp_format)
    delimiter = delimiter or ","
    if len(delimiter.encode()) != 1:
        raise SbonError("bad-option", "a delimiter is one ASCII character", where="options.delimiter")
    if pattern and kind != "text":
        raise SbonError("bad-option", f"{kind} has columns of its own", where="options.pattern", hint="set format to text")
    added = {name: make for name, make in (added or {}).items() if name in schema.names}
    inner = pa.schema([field for field in schema if field.name not in added])
    text_rows: TextFormat
    if kind == "csv":
        text_rows = CsvRows(inner, header=header, delimiter=delimiter, null=null, timestamp_format=timestamp_format)
    elif kind == "ndjson":
        text_rows = NdjsonRows(inner, timestamp_format=timestamp_format)
    else:
        text_rows = LineRows(inner, pattern=pattern, timestamp_format=timestamp_format)
    return _WithAdded(text_rows, schema, added) if added else text_rows


class _WithAdded:
    """A format whose rows have more columns than the text."""

    def __init__(self, inner: TextFormat, schema: pa.Schema, added: Added) -> None:
        self._inner, self._schema, self._added = inner, schema, added

    @property
    def ignored(self) -> tuple[str, ...]:
        return self._inner.ignored

    def begin(self, head: bytes) -> int:
        return self._inner.begin(head)

    def split(self, text: bytes) -> int:
        return self._inner.split(text)

    def parse(self, text: bytes, line: int) -> Parsed:
        parsed = self._inner.parse(text, line)
        arrays = []
        for field in self._schema:
            make = self._added.get(field.name)
            arrays.append(make(parsed.rows.num_rows).cast(field.type) if make else parsed.rows.column(field.name))
        return Parsed(pa.RecordBatch.from_arrays(arrays, schema=self._schema), parsed.bad, parsed.origin)


class Arrival:
    """Monotonic arrival times: a clock that is set back must not make rows late."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._last_ms = 0

    def __call__(self, rows: int) -> Any:
        self._last_ms = max(self._last_ms, self._wall_ms())
        return pa.array([self._last_ms] * rows, pa.timestamp("ms", "UTC"))
