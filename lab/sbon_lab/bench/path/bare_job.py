"""Bare Spark's side: a streaming job over files into Parquet files, in a process with a session for all jobs.

``python -m sbon_lab.bench.path.bare_job`` takes a :class:`Job` a line, and answers each with a :class:`JobEnd`.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from sbon_lab.bench.bare_spark import open_bare_session

CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "100",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""The best settings that we know for these jobs on two cores, beside Spark's defaults."""


class JobInput(msgspec.Struct, frozen=True, kw_only=True):
    """A stream's files, and its name in the SQL; ``schema`` is DDL."""

    name: str
    folder: str
    format: str
    schema: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A query; ``event_time`` is empty for one without state, and ``target`` the folder for its rows."""

    sql: str
    inputs: tuple[JobInput, ...]
    event_time: str
    target: str
    files_a_batch: int


class JobEnd(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float = 0.0
    batches: int = 0
    failure: str = ""


def run(session: SparkSession, job: Job, checkpoint: str) -> JobEnd:
    for source in job.inputs:
        reader = session.readStream.format(source.format).schema(source.schema).option("maxFilesPerTrigger", job.files_a_batch)
        rows = reader.option("header", "true").load(source.folder)
        if job.event_time:
            rows = rows.withWatermark(job.event_time, "0 seconds")
        rows.createOrReplaceTempView(source.name)
    began_s = time.monotonic()
    writer = session.sql(job.sql).writeStream.format("parquet").trigger(availableNow=True)
    query = writer.option("checkpointLocation", checkpoint).start(job.target)
    query.awaitTermination()
    seconds = time.monotonic() - began_s
    last = query.lastProgress
    return JobEnd(seconds=seconds, batches=0 if last is None else last["batchId"] + 1)


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    decoder = msgspec.json.Decoder(Job)
    with tempfile.TemporaryDirectory(prefix="bare-spark-", dir=sys.argv[1]) as folder:
        os.chdir(folder)  # Spark keeps a warehouse here
        session = open_bare_session(CONF | {"spark.local.dir": folder})
        session.range(1000).selectExpr("sum(id)").collect()
        answers.write(msgspec.json.encode(JobEnd()) + b"\n")
        for number, line in enumerate(sys.stdin.buffer):
            try:
                end = run(session, decoder.decode(line), str(Path(folder) / f"checkpoint-{number}"))
            except Exception as error:  # noqa: BLE001 - whatever Spark raises is the reason
                end = JobEnd(failure=str(error)[:2000])
            answers.write(msgspec.json.encode(end) + b"\n")
        session.stop()


if __name__ == "__main__":
    main()
