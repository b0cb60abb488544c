"""The newest rows that a sink received, as a sample for users."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from sbon_node.connectors.formats import frames
from sbon_node.connectors.formats.json_values import values_of
from sbon_protocol.api.delivery import SAMPLE_COLUMNS, SAMPLE_ROWS, SAMPLE_TEXT, Sample


class NewestRows:
    """Keeps the last frame that had rows, or its last rows; formats them only on request."""

    def __init__(self) -> None:
        self._last: pa.Table | None = None
        self._payload = b""
        self._sample: Sample | None = None

    def saw(self, payload: bytes, table: pa.Table | None = None) -> None:
        """Remember the rows of a frame. ``table`` holds the rows of a large payload; a small payload is unpacked on request."""
        if table is None and payload:
            self._payload, self._last, self._sample = payload, None, None
        elif table is not None and table.num_rows:
            first = max(0, table.num_rows - SAMPLE_ROWS)
            few = table.select(list(range(min(table.num_columns, SAMPLE_COLUMNS))))
            self._last = few.take(list(range(first, table.num_rows)))  # a copy: a slice would keep the whole table
            self._payload, self._sample = b"", None

    def saw_values(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Remember rows given as Python values."""
        if rows:
            texts = tuple(tuple(map(_text, row[:SAMPLE_COLUMNS])) for row in rows[-SAMPLE_ROWS:])
            self._sample = Sample(columns=tuple(columns[:SAMPLE_COLUMNS]), rows=texts)

    def sample(self) -> Sample | None:
        """Return the sample; None before the first row or if the frame is unreadable."""
        if self._payload:
            payload, self._payload = self._payload, b""
            with suppress(frames.BadPayloadError):
                self.saw(b"", frames.decode(payload))
        if self._sample is None and self._last is not None:
            self.saw_values(self._last.column_names, list(zip(*map(values_of, self._last.columns), strict=True)))
        return self._sample


def _text(value: Any) -> str | None:
    """Return the value as text, cut if it is long."""
    if value is None:
        return None
    text = value.isoformat().replace("+00:00", "Z") if hasattr(value, "isoformat") else str(value)
    return text if len(text) <= SAMPLE_TEXT else f"{text[: SAMPLE_TEXT - 1]}…"
