"""Complete records of a growing text; where reads cut it does not affect the result."""

from __future__ import annotations

from dataclasses import dataclass

from sbon_node.connectors.formats.blocks import Parsed, TextFormat, end_of_records, without_rows
from sbon_node.connectors.interface import BadRow
from sbon_node.connectors.settings import ConnectorSettings


@dataclass(frozen=True, slots=True)
class ParsedText:
    """Some records and their ``text``, from the end of the record before them."""

    parsed: Parsed
    text: bytes


class GrowingText:
    """Holds the incomplete record at the end of a text.

    It holds slightly more than ``max_record_bytes`` at most, if each call adds at most a block. ``line`` is the line of the next
    record. ``skipping`` means that the next bytes are the rest of a record that was too long.
    """

    def __init__(self, text: TextFormat, settings: ConnectorSettings, *, line: int = 1, skipping: bool = False) -> None:
        self.line, self.skipping = line, skipping
        self.buffered = b""
        self._format = text
        self._limit = max(settings.block_bytes, settings.max_record_bytes)
        self._max_shown = settings.dead_letter_text_bytes

    def add(self, text: bytes) -> None:
        self.buffered += text

    def take(self, *, ended: bool = False) -> ParsedText | None:
        """Return the held records known to be complete. ``ended`` means that no more text follows."""
        if self.skipping:
            return self._skip()
        end = end_of_records(self._format, self.buffered, ended=ended)
        if end:
            text = self._cut(end)
            parsed = self._format.parse(text if text.endswith(b"\n") else text + b"\n", self.line)
            self.line += text.count(b"\n")
            return ParsedText(parsed, text)
        if self.buffered and (ended or len(self.buffered) >= self._limit):
            return self._endless()
        return None

    def _endless(self) -> ParsedText:
        """Give up the first line of a record that does not end."""
        line_end = self.buffered.find(b"\n") + 1
        quoted = line_end or len(self.buffered) < self._limit
        text = self._cut(line_end or len(self.buffered))
        self.skipping = not quoted
        shown = text[: self._max_shown].decode("utf-8", "replace").rstrip("\r\n")
        reason = "a quote is opened and not closed" if quoted else f"a line longer than {self._limit:,} bytes"
        parsed = without_rows(self._format, self.line, BadRow(self.line, shown, reason))
        self.line += 1 if line_end else 0
        return ParsedText(parsed, text)

    def _skip(self) -> ParsedText | None:
        line_end = self.buffered.find(b"\n") + 1
        if not self.buffered:
            return None
        text = self._cut(line_end or len(self.buffered))
        if line_end:
            self.skipping = False
            self.line += 1
        return ParsedText(without_rows(self._format, self.line), text)

    def _cut(self, size: int) -> bytes:
        text, self.buffered = self.buffered[:size], self.buffered[size:]
        return text
