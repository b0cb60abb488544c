"""The suite's streams: what is declared, and the finite file of each site whose rows they are.

    for stream in write_streams(folder).values():
        client.create_stream(stream.declaration)
        for source in stream.sources():
            client.attach_source(source)

Every file has rows out of order, none of them later than the stream's delay. One seed, one input.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from sbon_cli.commands.demo.nycflights import FLIGHTS, WEATHER, Row, flight_rows, weather_rows, write_airports
from sbon_lab.suite import hosts, nexmark
from sbon_node.model.schema import to_arrow
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration

SITES = ("ewr", "jfk", "lga")
"""Sites of the sources; nodes have the same names unless :meth:`SuiteStream.sources` gets others."""

SEED = 2006
FIRST_DAY, LAST_DAY = "2013-02-07", "2013-02-11"
"""Dates of flights and weather, the last excluded: a blizzard is in the middle."""
START = datetime(2020, 2, 28, 23, tzinfo=UTC)
NEXMARK_EVENTS, NEXMARK_STEP = 3000, timedelta(milliseconds=100)
HOSTS_LENGTH = timedelta(minutes=90)
FLIGHTS_DELAY, WEATHER_DELAY = timedelta(minutes=20), timedelta(hours=2)


@dataclass(frozen=True)
class SuiteStream:
    """A declared stream with ``files`` and ``rows`` by site; ``length`` is about its range of event times."""

    declaration: StreamDeclaration
    files: Mapping[str, Path]
    rows: Mapping[str, int]
    length: timedelta

    def sources(self, nodes: Mapping[str, str] | None = None, *, seconds: float = 0.0) -> tuple[SourceDeclaration, ...]:
        """Return a source for each site, at the node of its name or in ``nodes``; read in ``seconds``, or at full speed."""
        length_s = self.length.total_seconds()
        return tuple(
            SourceDeclaration(
                stream=self.declaration.name,
                name=site,
                node=(nodes or {}).get(site, site),
                connector="file",
                options={"path": str(file)} | ({"replay": length_s / seconds} if seconds else {}),
                rows_s=max(self.rows[site], 1) / (seconds or 1.0),
                row_bytes=max(1.0, file.stat().st_size / max(self.rows[site], 1)),
            )
            for site, file in self.files.items()
        )


def write_streams(folder: Path, sites: Sequence[str] = SITES) -> dict[str, SuiteStream]:
    """Write every file and return the streams by name; rows of other sites go to the last of ``sites``.

    Raises ``input-missing`` if the flights are not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = [*_write_airports(folder, sites), *_write_nexmark(folder, sites), *_write_hosts(folder, sites)]
    return {stream.declaration.name: stream for stream in written}


def _write_airports(folder: Path, sites: Sequence[str]) -> Iterable[SuiteStream]:
    length = datetime.fromisoformat(LAST_DAY) - datetime.fromisoformat(FIRST_DAY)
    for declaration, of_airport, delay in (
        (FLIGHTS, flight_rows(FIRST_DAY, LAST_DAY), FLIGHTS_DELAY),
        (WEATHER, weather_rows(FIRST_DAY, LAST_DAY), WEATHER_DELAY),
    ):
        rng = random.Random(f"{SEED} {declaration.name}")
        born = _gathered({airport.lower(): rows for airport, rows in of_airport.items()}, sites)
        arrived = {site.upper(): _arrived(rows, _time_of, delay, rng) for site, rows in born.items()}
        late = msgspec.structs.replace(declaration, delay_ms=delay // timedelta(milliseconds=1))
        files = {airport.lower(): file for airport, file in write_airports(folder, declaration, arrived).items()}
        yield SuiteStream(late, files, {airport.lower(): len(rows) for airport, rows in arrived.items()}, length)


def _write_nexmark(folder: Path, sites: Sequence[str]) -> Iterable[SuiteStream]:
    rng = random.Random(f"{SEED} nexmark")
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for declaration, row in nexmark.events(NEXMARK_EVENTS, START, NEXMARK_STEP, rng):
        of_stream = rows.setdefault(declaration.name, {site: [] for site in SITES})
        of_stream[rng.choice(SITES)].append(row)
    for declaration in (nexmark.PERSON, nexmark.AUCTION, nexmark.BID):
        yield _written(folder, declaration, _gathered(rows[declaration.name], sites), "parquet", NEXMARK_EVENTS * NEXMARK_STEP)


def _write_hosts(folder: Path, sites: Sequence[str]) -> Iterable[SuiteStream]:
    for declaration, make, format_ in ((hosts.METRICS, hosts.metrics, "csv"), (hosts.DEPLOYS, hosts.deploys, "ndjson")):
        rows = {site: list(make(site, START, HOSTS_LENGTH, random.Random(f"{SEED} {declaration.name} {site}"))) for site in SITES}
        yield _written(folder, declaration, _gathered(rows, sites), format_, HOSTS_LENGTH)


def _gathered(rows: Mapping[str, list[Any]], sites: Sequence[str]) -> dict[str, list[Any]]:
    """Return the rows by site, each of which is one of ``sites``."""
    gathered: dict[str, list[Any]] = {site: [] for site in sites}
    for site, of_site in rows.items():
        gathered[site if site in sites else sites[-1]] += of_site
    return gathered


def _written(
    folder: Path, declaration: StreamDeclaration, rows: Mapping[str, list[dict[str, Any]]], format_: str, length: timedelta
) -> SuiteStream:
    schema, files = to_arrow(declaration.schema), {}
    for site, of_site in rows.items():
        rng = random.Random(f"{SEED} {declaration.name} {site}")
        delay = timedelta(milliseconds=declaration.delay_ms)
        table = pa.Table.from_pylist(_arrived(of_site, lambda row: row["ts"], delay, rng), schema)
        files[site] = folder / f"{declaration.name}-{site}.{format_}"
        _write(table, files[site])
    return SuiteStream(declaration, files, {site: len(of_site) for site, of_site in rows.items()}, length)


def _write(table: pa.Table, file: Path) -> None:
    if file.suffix == ".parquet":
        pq.write_table(table, file, row_group_size=200)
    elif file.suffix == ".csv":
        arrow_csv.write_csv(table, file)
    else:
        file.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in table.to_pylist()))


def _time_of(row: Row) -> datetime:
    return datetime.fromisoformat(row[0])


def _arrived(rows: Iterable[Any], time_of: Any, delay: timedelta, rng: random.Random) -> list[Any]:
    """Return the rows in order of arrival, each up to ``delay`` after its event time, so that none is late."""
    return sorted(rows, key=lambda row: time_of(row) + delay * rng.random())
