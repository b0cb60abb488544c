"""The durable delivery position of sinks whose results are not files."""

from pathlib import Path

import msgspec

from sbon_node.base.disk import named_errors, replace, sync_path
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


class DeliveryPositionFile:
    """The delivery position in a file of this node, for receivers that store none. Calls block."""

    def __init__(self, data_dir: Path, claim: str) -> None:
        self.path = data_dir / SINKS / f"{claim}.json"

    def make(self, position: DeliveryPosition | None = None) -> DeliveryPosition:
        """Store the first position, by default that of a sink which has delivered nothing."""
        with named_errors(self.path):
            self.path.parent.mkdir(exist_ok=True)
            sync_path(self.path.parent.parent)
        first = position or DeliveryPosition()
        self.store(first)
        return first

    def take_up(self) -> DeliveryPosition:
        """Read the stored position, whose name is durable on return. Raises ``sink-lost`` if it is missing."""
        try:
            with named_errors(self.path):
                if not self.path.exists():
                    return self._lost("is missing")
                sync_path(self.path.parent)
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
