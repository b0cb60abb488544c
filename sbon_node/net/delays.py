"""Round-trip times between the sites of an emulated wide-area network, and their loads: a table indexed by IP address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta

from sbon_node.base.clock import Clock
from sbon_node.base.validation_messages import in_plain_words
from sbon_protocol.errors import SbonError
from sbon_protocol.rtt_matrix import MAX_RTT_MS

log = structlog.get_logger()

REREAD_S = 1.0
"""Pause between two looks whether the file has changed."""

Rtt = Annotated[float, Meta(ge=0, le=MAX_RTT_MS)]
Load = Annotated[float, Meta(ge=0, le=1000)]


class DelayTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delays between sites.

    ``sites`` maps IP addresses to named places; ``rtt_ms[i][j]`` is the round trip between ``names[i]`` and ``names[j]`` in
    milliseconds; ``jitter`` is the spread of each single delay (the standard deviation of its logarithm). Nothing passes from the
    first to the second site of a pair in ``cuts``. ``load_per_core`` has the runnable processes per core of named sites, in place
    of those of the machine that all share.
    """

    sites: Annotated[dict[str, str], Meta(max_length=65_536)]
    names: Annotated[tuple[str, ...], Meta(max_length=4096)]
    rtt_ms: Annotated[tuple[tuple[Rtt, ...], ...], Meta(max_length=4096)]
    jitter: Annotated[float, Meta(ge=0, le=2)] = 0.05
    cuts: Annotated[tuple[tuple[str, str], ...], Meta(max_length=65_536)] = ()
    load_per_core: Annotated[dict[str, Load], Meta(max_length=4096)] = {}

    def __post_init__(self) -> None:
        count = len(self.names)
        if len(set(self.names)) != count:
            raise ValueError("names repeat")
        if len(self.rtt_ms) != count or any(len(row) != count for row in self.rtt_ms):
            raise ValueError(f"rtt_ms is not {count} rows of {count}, one for each name")
        for host, name in self.sites.items():
            if name not in self.names:
                raise ValueError(f"site {host} is at {name!r}, which is not among the names")
        for name in (name for cut in self.cuts for name in cut):
            if name not in self.names:
                raise ValueError(f"a cut has {name!r}, which is not among the names")
        for name in self.load_per_core:
            if name not in self.names:
                raise ValueError(f"load_per_core has {name!r}, which is not among the names")


class Delays:
    """The current delays; :meth:`replace` also affects open connections."""

    def __init__(self, table: DelayTable) -> None:
        self.replace(table)

    @classmethod
    def load(cls, path: Path) -> Delays:
        """Load delays from a file; raises :class:`SbonError` ``bad-delays``."""
        return cls(read_delays(path))

    @property
    def jitter(self) -> float:
        return self._table.jitter

    def replace(self, table: DelayTable) -> None:
        self._table = table
        index = {name: number for number, name in enumerate(table.names)}
        self._sites = {host: index[name] for host, name in table.sites.items()}
        self._rtt_ms = [list(row) for row in table.rtt_ms]
        self._cuts = frozenset((index[source], index[target]) for source, target in table.cuts)
        self._loads = {host: table.load_per_core[name] for host, name in table.sites.items() if name in table.load_per_core}

    def one_way_s(self, source: str, target: str) -> float:
        """Return half the round trip between two IP addresses, in seconds; 0 if either is unknown."""
        i, j = self._sites.get(source), self._sites.get(target)
        return 0.0 if i is None or j is None else self._rtt_ms[i][j] / 2000

    def is_cut(self, source: str, target: str) -> bool:
        """Say whether nothing passes from one IP address to another."""
        return bool(self._cuts) and (self._sites.get(source), self._sites.get(target)) in self._cuts

    def load_per_core(self, host: str) -> float | None:
        """Return the emulated load of the site at an IP address, in runnable processes per core; None if it has none."""
        return self._loads.get(host)


def read_delays(path: Path) -> DelayTable:
    """Read a delay table; raises :class:`SbonError` ``bad-delays``."""
    hint = '{"sites": {"127.0.10.1": "london"}, "names": ["london"], "rtt_ms": [[0]]}'
    try:
        return msgspec.json.decode(path.read_bytes(), type=DelayTable)
    except msgspec.ValidationError as error:
        field, message = in_plain_words(error)
        raise SbonError("bad-delays", f"{field}: {message}" if field else message, where=str(path), hint=hint) from error
    except (OSError, msgspec.DecodeError) as error:
        raise SbonError("bad-delays", str(error), where=str(path), hint=hint) from error


async def keep_reread(delays: Delays, path: Path, clock: Clock) -> None:
    """Replace the delays for ever when the file has changed. The old ones stay while it is missing or cannot be used."""
    seen: tuple[int, int, int] | None = None
    while True:
        stamp = _stamp(path)
        if stamp is not None and stamp != seen:
            seen = stamp
            try:
                delays.replace(read_delays(path))
            except SbonError as error:
                log.warning("delays-not-reread", reason=str(error), hint="the former delays stay")
        await clock.sleep(REREAD_S)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with the file: time, number and size; None if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
