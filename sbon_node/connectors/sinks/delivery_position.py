"""The durable delivery position of sinks whose results are not files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from sbon_node.base.disk import named_errors, replace, sync_folder
from sbon_node.base.executors import Executor
from sbon_node.connectors.interface import BadRow
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks import file_formats
from sbon_node.connectors.sources.dead_letters import DeadLetters
from sbon_protocol.errors import SbonError

SINKS = "sinks"
DEAD_LETTERS = "dead-letters"


class DeliveryPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery position as stored.

    ``streams`` maps each stream to its last delivered frame. ``letters`` is the valid length of the dead-letter file in bytes.
    """

    streams: dict[str, int] = {}
    ended: tuple[str, ...] = ()
    rows: int = 0
    refused: int = 0
    letters: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Row ``index`` of a frame, which the receiver refused."""

    stream: str
    number: int
    index: int
    rows: pa.Table
    reason: str


class PositionedSink:
    """Members of :class:`sbon_node.connectors.interface.Sink` that report the stored position."""

    def __init__(self, stored: DeliveryPosition, letters: DeadLetters, executor: Executor) -> None:
        self._at, self._letters, self._executor = stored, letters, executor

    def positions(self) -> dict[str, int]:
        return dict(self._at.streams)

    @property
    def ended(self) -> frozenset[str]:
        return frozenset(self._at.ended)

    @property
    def rows(self) -> int:
        return self._at.rows

    @property
    def refused(self) -> int:
        return self._at.refused

    @property
    def dead_letters(self) -> str:
        return str(self._letters.path) if self._at.refused else ""

    def _advanced(
        self, streams: dict[str, int], ended: Iterable[str], rows: int, *, refused: int, finished: bool
    ) -> DeliveryPosition:
        """Return the position to store after delivery of ``rows`` more rows, which exclude the ``refused`` ones."""
        return msgspec.structs.replace(
            self._at,
            streams=dict(sorted(streams.items())),
            ended=tuple(sorted(ended)),
            rows=self._at.rows + rows,
            refused=self._at.refused + refused,
            letters=self._letters.length,
            finished=finished,
        )

    async def _state(self, file: DeliveryPositionFile, position: DeliveryPosition) -> None:
        """Store the position, even if cancelled meanwhile, so that the sink always reports the stored position."""

        def store() -> None:
            file.store(position)
            self._at = position

        await self._executor(store)

    async def _write_letters(self, refused: Sequence[Refused]) -> None:
        """Write dead letters after the stored length. This overwrites letters that an earlier attempt wrote beyond it."""
        if not refused:
            return
        bad_rows = [
            BadRow(
                refusal.index + 1,
                _as_json(refusal.rows, refusal.index),
                f"frame {refusal.number} of {refusal.stream}: {refusal.reason}",
            )
            for refusal in refused
        ]

        def write() -> None:
            self._letters.open(self._at.letters)
            self._letters.write(bad_rows)

        await self._executor(write)


def letters_of(data_dir: Path, component: str, claim: str, settings: ConnectorSettings) -> DeadLetters:
    return DeadLetters(
        data_dir / DEAD_LETTERS,
        f"{component}.{claim}",
        max_bytes=settings.dead_letter_max_bytes,
        max_text=settings.dead_letter_text_bytes,
    )


class DeliveryPositionFile:
    """The delivery position in a file of this node, for receivers that store none. Calls block."""

    def __init__(self, data_dir: Path, claim: str) -> None:
        self.path = data_dir / SINKS / f"{claim}.json"

    def make(self, position: DeliveryPosition | None = None) -> DeliveryPosition:
        """Store the first position, by default that of a sink which has delivered nothing."""
        with named_errors(self.path):
            self.path.parent.mkdir(exist_ok=True)
            sync_folder(self.path.parent.parent)
        first = position or DeliveryPosition()
        self.store(first)
        return first

    def take_up(self) -> DeliveryPosition:
        """Read the stored position; raise ``sink-lost`` if it is missing.

        Its name is durable on return, even if the process that stored it was killed.
        """
        try:
            with named_errors(self.path):
                if not self.path.exists():
                    return self._lost("is missing")
                sync_folder(self.path.parent)
                return msgspec.json.decode(self.path.read_bytes(), type=DeliveryPosition)
        except msgspec.DecodeError as error:
            return self._lost(f"cannot be read: {error}")

    def store(self, position: DeliveryPosition) -> None:
        with named_errors(self.path):
            replace(self.path, msgspec.json.encode(position))

    def remove(self) -> None:
        with named_errors(self.path):
            self.path.unlink(missing_ok=True)

    def _lost(self, why: str) -> DeliveryPosition:
        message = f"the delivery position file {why}"
        raise SbonError("sink-lost", message, where=str(self.path), hint="submit the query again")


def _as_json(rows: pa.Table, index: int) -> str:
    return file_formats.text("ndjson", rows.slice(index, 1)).decode("utf-8", "replace").rstrip("\n")
