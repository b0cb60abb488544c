"""How far a sink has delivered, stated durably, for sinks whose results are not files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from sbon_node.blocking import Blocking
from sbon_node.connectors import sink_files
from sbon_node.connectors.dead_letters import DeadLetters
from sbon_node.connectors.interface import BadRow
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.disk import named_errors, replace, sync_folder
from sbon_node.errors import SbonError

SINKS = "sinks"
DEAD_LETTERS = "dead-letters"


class Stated(msgspec.Struct, frozen=True, kw_only=True):
    """``streams`` are the last frames delivered; ``letters`` the bytes of the dead-letter file that count."""

    streams: dict[str, int] = {}
    ended: tuple[str, ...] = ()
    rows: int = 0
    refused: int = 0
    letters: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Row ``index`` of a frame, which the other end did not take."""

    stream: str
    number: int
    index: int
    rows: pa.Table
    reason: str


class StatedSink:
    """The members of :class:`sbon_node.connectors.interface.Sink` that tell what is stated."""

    def __init__(self, stated: Stated, letters: DeadLetters, blocking: Blocking) -> None:
        self._at, self._letters, self._blocking = stated, letters, blocking

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

    def _advanced(self, streams: dict[str, int], ended: Iterable[str], rows: int, *, refused: int, finished: bool) -> Stated:
        """What will be stated once ``rows`` more, ``refused`` ones not among them, have been delivered."""
        return msgspec.structs.replace(
            self._at,
            streams=dict(sorted(streams.items())),
            ended=tuple(sorted(ended)),
            rows=self._at.rows + rows,
            refused=self._at.refused + refused,
            letters=self._letters.length,
            finished=finished,
        )

    async def _state(self, file: StatedFile, stated: Stated) -> None:
        """Also where it is cancelled meanwhile: what is told of the sink is what is stated."""

        def store() -> None:
            file.store(stated)
            self._at = stated

        await self._blocking(store)

    async def _write_letters(self, refused: Sequence[Refused]) -> None:
        """After what is stated: what an earlier try wrote beyond that is written anew."""
        if not refused:
            return
        found = [
            BadRow(one.index + 1, _as_json(one.rows, one.index), f"frame {one.number} of {one.stream}: {one.reason}")
            for one in refused
        ]

        def write() -> None:
            self._letters.open(self._at.letters)
            self._letters.write(found)

        await self._blocking(write)


def letters_of(data_dir: Path, part: str, claim: str, settings: ConnectorSettings) -> DeadLetters:
    return DeadLetters(
        data_dir / DEAD_LETTERS,
        f"{part}.{claim}",
        max_bytes=settings.dead_letter_max_bytes,
        max_text=settings.dead_letter_text_bytes,
    )


class StatedFile:
    """What is stated, in a file of this node, for an other end that keeps nothing for us. Calls block."""

    def __init__(self, data_dir: Path, claim: str) -> None:
        self.path = data_dir / SINKS / f"{claim}.json"

    def make(self) -> Stated:
        with named_errors(self.path):
            self.path.parent.mkdir(exist_ok=True)
            sync_folder(self.path.parent.parent)
        stated = Stated()
        self.store(stated)
        return stated

    def take_up(self) -> Stated:
        """Raises ``sink-lost`` where it is gone."""
        try:
            with named_errors(self.path):
                return msgspec.json.decode(self.path.read_bytes(), type=Stated) if self.path.exists() else self._lost("is gone")
        except msgspec.DecodeError as error:
            return self._lost(f"cannot be read: {error}")

    def store(self, stated: Stated) -> None:
        with named_errors(self.path):
            replace(self.path, msgspec.json.encode(stated))

    def remove(self) -> None:
        with named_errors(self.path):
            self.path.unlink(missing_ok=True)

    def _lost(self, why: str) -> Stated:
        message = f"how far was delivered is not known: what was stated {why}"
        raise SbonError("sink-lost", message, where=str(self.path), hint="submit the query again")


def _as_json(rows: pa.Table, index: int) -> str:
    return sink_files.text("ndjson", rows.slice(index, 1)).decode("utf-8", "replace").rstrip("\n")
