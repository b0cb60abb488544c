"""Control of bare Spark's process, as a context manager."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as arrow_parquet

from sbon_lab.bench.path.bare_job import Job, JobEnd, JobInput
from sbon_lab.bench.path.cases import NEWS, TRADES, Case, Format
from sbon_protocol.errors import SbonError

MODULE = "sbon_lab.bench.path.bare_job"


class BareSpark:
    """Bare Spark: after entering, its session is ready. ``folder`` holds its checkpoints and temporary files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._decoder = msgspec.json.Decoder(JobEnd)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", MODULE, str(self._folder)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self._answer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its JVM reads from a pipe of this process and ends with it
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, case: Case, kind: Format, inputs: Inputs, target: Path) -> JobEnd:
        """Run a case to its end. Raise :class:`SbonError` ``query-failed``."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(job_of(case, kind, inputs, target)) + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> JobEnd:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SbonError("query-failed", f"bare Spark ended with code {self._process.wait()}")
        end = self._decoder.decode(line)
        if end.failure:
            raise SbonError("query-failed", f"bare Spark: {end.failure}")
        return end


def job_of(case: Case, kind: Format, inputs: Inputs, target: Path) -> Job:
    folder_of = inputs.sliced if case.sliced else inputs.whole
    return Job(
        sql=case.bare_sql.format(**{stream.name: stream.name for stream in case.streams}),
        inputs=tuple(
            JobInput(
                name=stream.name,
                folder=str(folder_of(stream.name)),
                format=kind,
                schema=", ".join(f"{column.name} {column.type}" for column in stream.schema),
            )
            for stream in case.streams
        ),
        event_time="" if case.name == "filter" else "ts",
        target=str(target),
        files_a_batch=len(NODES),
    )


# -- Input files of the benchmark, made from a seed: at each node a file of every stream, and the same rows for bare Spark --

# Prices are multiples of an eighth, so that sums do not depend on the order of rows.

NODES = ("ada", "bob")
SYMBOLS, ACCOUNTS, TRADES_OF_NEWS = 20, 10_000, 200
STEP_US = 10_000
SLICE_ROWS = 200_000
"""Trades of both nodes in a slice: as many as a batch of an operator with state takes by default."""
_FIRST_US = 1_577_836_800_000_000
_LAST_US = _FIRST_US + 10**15
"""The time of a row after all others: its batch makes Spark release the last windows. No filter passes it."""


class Inputs:
    """The files of a format in ``folder``."""

    def __init__(self, folder: Path, kind: Format) -> None:
        self._folder, self._kind = folder, kind

    def file(self, stream: str, node: str) -> Path:
        return self._folder / f"{stream}-{node}.{self._kind}"

    def whole(self, stream: str) -> Path:
        """Return the folder of the nodes' files, and of a file with the row after all others, which is the newest."""
        return self._folder / f"{stream}-whole"

    def sliced(self, stream: str) -> Path:
        """Return the folder of the same rows in slices of time, the oldest file first."""
        return self._folder / f"{stream}-sliced"

    def write(self, rows: int, seed: int) -> None:
        """Write ``rows`` trades in all, and news for them; the same seed writes the same."""
        for stream in (TRADES.name, NEWS.name):
            self.whole(stream).mkdir(parents=True)
            self.sliced(stream).mkdir(parents=True)
        for number, node in enumerate(NODES):
            rng = np.random.default_rng((seed, number))
            count = rows // len(NODES)
            trades = _trades(rng, count)
            self._write_node(TRADES.name, node, trades, SLICE_ROWS // len(NODES))
            news = _news(rng, max(1, count // TRADES_OF_NEWS))
            self._write_node(NEWS.name, node, news, SLICE_ROWS // len(NODES) // TRADES_OF_NEWS)

    def _write_node(self, stream: str, node: str, table: pa.Table, slice_rows: int) -> None:
        path = self.file(stream, node)
        self._write(path, table)
        os.link(path, self.whole(stream) / path.name)
        os.utime(path, (_FIRST_US // 10**6, _FIRST_US // 10**6))
        last = table.slice(0, 1).set_column(0, "ts", _times(np.array([_LAST_US])))
        if "size" in last.schema.names:
            last = last.set_column(last.schema.get_field_index("size"), "size", pa.array([0]))
        self._write(self.whole(stream) / f"last.{self._kind}", last)
        for number, first in enumerate(range(0, table.num_rows, slice_rows)):
            part = self.sliced(stream) / f"{number:05d}-{node}.{self._kind}"
            self._write(part, table.slice(first, slice_rows))
            os.utime(part, (_FIRST_US // 10**6 + number, _FIRST_US // 10**6 + number))

    def _write(self, path: Path, table: pa.Table) -> None:
        if self._kind == "parquet":
            arrow_parquet.write_table(table, path)
        else:
            texts = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us")).cast(pa.string()))
            arrow_csv.write_csv(texts, path, arrow_csv.WriteOptions(quoting_style="none"))


def _times(times_us: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pa.array(times_us).cast(pa.timestamp("us", tz="UTC"))


def _symbols(rng: np.random.Generator, count: int) -> pa.Array:
    return pa.array([f"s{number:02d}" for number in range(SYMBOLS)]).take(pa.array(rng.integers(0, SYMBOLS, count)))


def _trades(rng: np.random.Generator, count: int) -> pa.Table:
    return pa.table(
        {
            "ts": _times(_FIRST_US + STEP_US * np.arange(count)),
            "symbol": _symbols(rng, count),
            "account": pa.array(rng.integers(0, ACCOUNTS, count)),
            "price": pa.array(rng.integers(800, 8000, count) / 8),
            "size": pa.array(rng.integers(1, 101, count)),
        }
    )


def _news(rng: np.random.Generator, count: int) -> pa.Table:
    return pa.table(
        {
            "ts": _times(_FIRST_US + TRADES_OF_NEWS * STEP_US * np.arange(count)),
            "symbol": _symbols(rng, count),
            "headline": pa.array(rng.integers(0, 2**40, count)),
        }
    )
