"""Control of bare Spark's process, as a context manager."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from sbon_node.errors import SbonError
from sbon_node.experiments.bench.path.bare_job import Job, JobEnd, JobInput
from sbon_node.experiments.bench.path.cases import Case, Format
from sbon_node.experiments.bench.path.inputs import NODES, Inputs

MODULE = "sbon_node.experiments.bench.path.bare_job"


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
