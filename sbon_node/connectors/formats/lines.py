"""Formats with a row per line: NDJSON, a JSON object per line, and plain lines."""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sbon_node.connectors.formats.blocks import MAX_IGNORED, MAX_IGNORED_NAME, Parsed
from sbon_node.connectors.formats.columns import fitting, fitting_rows, supports_text, text_converter, value_converter
from sbon_node.connectors.interface import BadRow
from sbon_node.model.schema import type_of
from sbon_protocol.errors import SbonError

_MARK = b"\xef\xbb\xbf"
LINE = "line"


class NdjsonRows:
    """NDJSON, a JSON object per line; see :class:`sbon_node.connectors.formats.blocks.TextFormat`.

    Members without a column are ignored, columns without a member are NULL. Numbers with a point or an exponent stay texts until
    they are converted to the type of their column: a double would change the digits of a decimal.

    msgspec decodes the lines, since Arrow's own reader (as of version 26) crashes the process on lines like ``null``.
    """

    def __init__(self, schema: pa.Schema, *, timestamp_format: str) -> None:
        self._schema = schema
        self._converters = [value_converter(column.type, timestamp_format) for column in schema]
        self._decoder = msgspec.json.Decoder(dict[str, Any], float_hook=msgspec.Raw)
        self._names = frozenset(schema.names)
        self._ignored: dict[str, None] = {}

    @property
    def ignored(self) -> tuple[str, ...]:
        return tuple(self._ignored)

    def begin(self, head: bytes) -> int:
        return len(_MARK) if head.startswith(_MARK) else 0

    def split(self, text: bytes) -> int:
        return text.rfind(b"\n") + 1

    def parse(self, text: bytes, line: int) -> Parsed:
        lines = [(line + i, record) for i, record in enumerate(text.split(b"\n")) if record.strip()]
        bad: dict[int, str] = {}
        objects: list[dict[str, Any]] = []
        decode = self._decoder.decode
        for i, (_, record) in enumerate(lines):
            try:
                objects.append(decode(record))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                bad[i] = f"no JSON object: {error}"
        self._ignore(objects)
        good = np.array([i for i in range(len(lines)) if i not in bad], dtype=np.int64)
        columns = [[entry.get(name) for entry in objects] for name in self._schema.names]
        arrays, fit, misfits = fitting_rows(self._schema, self._converters, columns, len(good), _shown)
        bad |= {int(good[i]): reason for i, reason in misfits.items()}
        return _parsed(lines, pa.RecordBatch.from_arrays(arrays, schema=self._schema), good[fit], bad)

    def _ignore(self, objects: list[dict[str, Any]]) -> None:
        names, ignored = self._names, self._ignored
        for entry in objects:
            if len(ignored) == MAX_IGNORED:
                return
            if not names.issuperset(entry):
                unknown = [name[:MAX_IGNORED_NAME] for name in entry if name not in names]
                ignored |= dict.fromkeys(unknown[: MAX_IGNORED - len(ignored)])


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return repr(text[:80])


class LineRows:
    """Plain lines; see :class:`sbon_node.connectors.formats.blocks.TextFormat`.

    Columns are the pattern's named groups, and ``line``, which is all of it. Patterns are RE2's (through Arrow), which takes time
    proportional to the text: no pattern can block the node.
    """

    ignored = ()

    def __init__(self, schema: pa.Schema, *, pattern: str, timestamp_format: str) -> None:
        self._schema, self._pattern, self._groups = schema, pattern, _groups(pattern)
        for column in schema:
            if column.name not in (*self._groups, LINE):
                hint = f"a column is {LINE}, or a group of the pattern: (?P<{column.name}>...)"
                message = f"a line has no {column.name}"
                raise SbonError("missing-columns", message, where="options.pattern", hint=hint)
            if not supports_text(column.type):
                raise SbonError("bad-option", f"a line cannot hold a column of type {type_of(column.type)}", where=column.name)
        self._converters = [text_converter(column.type, timestamp_format) for column in schema]

    def begin(self, head: bytes) -> int:
        return 0

    def split(self, text: bytes) -> int:
        return text.rfind(b"\n") + 1

    def parse(self, text: bytes, line: int) -> Parsed:
        lines = [(line + i, record.rstrip(b"\r")) for i, record in enumerate(text.split(b"\n")) if record.strip()]
        texts, misfits = fitting(pa.array([record for _, record in lines], pa.binary()), lambda raw: raw.cast(pa.string()))
        bad = dict.fromkeys(misfits, "not UTF-8")
        good = np.delete(np.arange(len(lines)), misfits)
        by_name = {}
        if self._groups:
            groups = pc.extract_regex(texts, self._pattern)
            matching = groups.is_valid().to_numpy(zero_copy_only=False)
            bad |= {int(i): "does not match the pattern" for i in good[~matching]}
            good, texts, groups = good[matching], texts.filter(pa.array(matching)), groups.filter(pa.array(matching))
            by_name = {name: pc.struct_field(groups, name) for name in self._groups}
        columns = [by_name.get(name, texts).cast(pa.binary()) for name in self._schema.names]
        arrays, fit, unfit = fitting_rows(
            self._schema, self._converters, columns, len(good), lambda value: repr(value.as_py().decode()[:80])
        )
        bad |= {int(good[i]): reason for i, reason in unfit.items()}
        return _parsed(lines, _batch(arrays, self._schema, len(fit)), good[fit], bad)


def _parsed(lines: list[tuple[int, bytes]], rows: pa.RecordBatch, good: npt.NDArray[np.int64], bad: dict[int, str]) -> Parsed:
    """Return the ``rows`` of the ``good`` lines, by index, and the dead letters of the ``bad`` ones."""

    def origin(index: int) -> tuple[int, str]:
        number, record = lines[index]
        return number, record.decode("utf-8", "replace").rstrip("\r\n")

    letters = tuple(BadRow(*origin(i), bad[i]) for i in sorted(bad))
    return Parsed(rows, letters, lambda i: origin(int(good[i])))


def _batch(arrays: list[Any], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch; it may have no columns."""
    struct = pa.StructArray.from_arrays(arrays, fields=list(schema)) if arrays else pa.array([{}] * rows, pa.struct([]))
    return pa.RecordBatch.from_struct_array(struct)


def _groups(pattern: str) -> tuple[str, ...]:
    """Return the names of the pattern's groups; raise ``bad-option``."""
    if not pattern:
        return ()
    try:
        groups = pc.extract_regex(pa.array([""]), pattern)
    except pa.ArrowException as error:
        hint = "as in (?P<host>\\S+) (?P<status>\\d+): every group has a name"
        raise SbonError("bad-option", f"no pattern: {error}", where="options.pattern", hint=hint) from error
    return tuple(field.name for field in groups.type)
