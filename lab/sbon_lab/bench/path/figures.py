"""Rows of the benchmark's result, their comparison with stored ones, and the comparison of both sides' output."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sbon_lab.bench.path.bare_job import JobEnd
from sbon_lab.bench.path.cases import Case, Format
from sbon_lab.bench.path.costs import KINDS, Costs
from sbon_node.base import extras
from sbon_protocol.api.queries import QueryInfo

RATIOS = ("wall_ratio", "cpu_ratio")


class Run(NamedTuple):
    """A side's run of a case."""

    seconds: float
    costs: Costs

    @property
    def cpu_s(self) -> float:
        return sum(self.costs.cpu_s.values())


def row_of(case: Case, kind: Format, rows: int, ours: Run, info: QueryInfo, bare: Run, end: JobEnd) -> dict[str, Any]:
    """Return the flat row of a case over ``rows`` input rows.

    ``wall_ratio`` is our rows a second over bare Spark's, the greater the better; ``cpu_ratio`` our CPU seconds over its, the
    less the better. ``rows_a_batch`` is that of the operators that read sources.
    """
    assert info.plan is not None
    sources = {planned.source.id for planned in info.plan.sources}
    reads = {planned.id for planned in info.plan.operators if any(spec.stream in sources for spec in planned.inputs)}
    stats = {operator.id: operator.stats for operator in info.operators if operator.stats is not None}
    first = [stats[name] for name in reads if name in stats]
    batches = sum(one.batches for one in first)
    return {
        "case": case.name,
        "format": kind,
        "rows": rows,
        "wall_ratio": round(bare.seconds / ours.seconds, 3),
        "cpu_ratio": round(ours.cpu_s / bare.cpu_s, 2) if bare.cpu_s else None,
        **_side("", rows, ours),
        **{f"cpu_{kind}_s": round(ours.costs.cpu_s[kind], 2) for kind in KINDS},
        "operators": len(stats),
        "batches": sum(one.batches for one in stats.values()),
        "rows_a_batch": round(sum(one.rows_in for one in first) / batches) if batches else None,
        **_side("bare_", rows, bare),
        "bare_batches": end.batches,
    }


def _side(prefix: str, rows: int, run: Run) -> dict[str, Any]:
    return {
        f"{prefix}seconds": round(run.seconds, 2),
        f"{prefix}rows_s": round(rows / run.seconds),
        f"{prefix}cpu_s": round(run.cpu_s, 2),
        f"{prefix}cpu_rows_s": round(rows / run.cpu_s) if run.cpu_s else None,
        f"{prefix}disk_mb": round(run.costs.disk_mb, 3),
        f"{prefix}memory_mb": round(run.costs.memory_mb),
    }


def wrong_rows(ours: Path, bare: Path) -> tuple[int, int]:
    """Return the number of our rows, and of rows that only one of two folders of Parquet files has, repetitions included."""
    database = extras.duckdb().connect()
    database.execute("SET TimeZone = 'UTC'")
    for name, folder in (("ours", ours), ("bare", bare)):
        files = f"read_parquet('{folder}/*.parquet')" if any(folder.glob("*.parquet")) else None
        database.execute(f"CREATE VIEW {name} AS FROM {files}" if files else f"CREATE VIEW {name} AS SELECT 1 WHERE false")

    def count(relation: str) -> int:
        return int(database.sql(f"SELECT count(*) FROM {relation}").fetchall()[0][0])

    rows, bare_rows = count("ours"), count("bare")
    if not rows or not bare_rows:
        return rows, rows + bare_rows
    return rows, count("(FROM ours EXCEPT ALL FROM bare)") + count("(FROM bare EXCEPT ALL FROM ours)")


def beside(rows: Sequence[Mapping[str, Any]], stored: Path) -> list[dict[str, Any]]:
    """Return each row's ratios beside those of the stored result, for the same case, format and number of rows."""
    known: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    if stored.exists():
        known = {_key(row): row for row in json.loads(stored.read_text(encoding="utf-8"))["rows"]}
    return [
        {
            "case": row["case"],
            "format": row["format"],
            "rows": row["rows"],
            **{name: value for ratio in RATIOS for name, value in _pair(ratio, row, known.get(_key(row), {})).items()},
            "wrong": row["wrong"],
        }
        for row in rows
    ]


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["case"], row["format"], row["rows"]


def _pair(ratio: str, row: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    return {ratio: row[ratio], f"stored_{ratio}": stored.get(ratio)}
