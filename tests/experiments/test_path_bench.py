"""The benchmark of the whole path: its input, its accounts of processes, its comparisons; and a short run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbon_lab.bench.path.bare import NODES, Inputs, job_of
from sbon_lab.bench.path.cases import CASES, FORMATS, STREAMS, Format
from sbon_lab.bench.path.costs import Costs, kind_of, size_mb
from sbon_lab.bench.path.figures import beside, wrong_rows
from sbon_lab.commands import bench_path
from sbon_node.engine.spark.supervisor import ENGINE_MODULE


@pytest.mark.one_part_per_commit("small runs of experiments", parts=6)
@pytest.mark.parametrize("kind", FORMATS)
def test_bare_spark_reads_the_rows_of_the_nodes(kind: Format, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path, kind)
    inputs.write(450_000, seed=1)
    for stream in STREAMS:
        own = ", ".join(f"'{inputs.file(stream, node)}'" for node in NODES)
        rows = _count(f"FROM read_{kind}([{own}])")
        assert rows == (450_000 if stream == "trades" else 450_000 // 400 * 2)
        sliced = f"FROM read_{kind}('{inputs.sliced(stream)}/*')"
        assert _count(sliced) == rows
        assert _count(f"{sliced} EXCEPT ALL FROM read_{kind}([{own}])") == 0
        whole = f"FROM read_{kind}('{inputs.whole(stream)}/*')"
        assert _count(whole) == rows + 1
        assert _count(f"{whole} EXCEPT ALL FROM read_{kind}([{own}])") == 1
        by_age = sorted(inputs.whole(stream).iterdir(), key=lambda file: file.stat().st_mtime)
        assert by_age[-1].stem == "last"
        slices = sorted(inputs.sliced(stream).iterdir(), key=lambda file: file.stat().st_mtime)
        assert [file.stem[:5] for file in slices] == ["00000"] * 2 + ["00001"] * 2 + ["00002"] * 2


def test_the_same_seed_writes_the_same_files(tmp_path: Path) -> None:
    files = []
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        inputs = Inputs(tmp_path / name, "csv")
        inputs.write(10_000, seed)
        files.append(inputs.file("trades", "bob").read_bytes())
    assert files[0] == files[1] != files[2]


def test_jobs_of_bare_spark_read_whole_files_but_for_the_join(tmp_path: Path) -> None:
    inputs = Inputs(tmp_path, "csv")
    jobs = {name: job_of(case, "csv", inputs, tmp_path) for name, case in CASES.items()}
    assert {name: [source.folder for source in job.inputs] for name, job in jobs.items()} == {
        **{name: [str(inputs.whole("trades"))] for name in ("filter", "aggregate", "aggregate-many-keys")},
        "join": [str(inputs.sliced("trades")), str(inputs.sliced("news"))],
    }
    assert [name for name, job in jobs.items() if not job.event_time] == ["filter"]


def test_the_command_offers_every_case_and_format() -> None:
    assert tuple(CASES) == bench_path.CASES
    assert tuple(FORMATS) == bench_path.FORMATS


@pytest.mark.parametrize(
    ("command", "top", "kind"),
    [
        (["python", "-m", "sbon_cli.main", "node"], True, "daemon"),
        (["/usr/bin/java", "-Xmx512m"], False, "jvm"),
        (["python", "-m", ENGINE_MODULE, "{}"], False, "host"),
        (["python", "-m", "sbon_node.engine.spark.zygote", "zygote.sock"], False, "python"),
        ([], False, "python"),
    ],
)
def test_processes_are_told_apart_by_their_commands(command: list[str], top: bool, kind: str) -> None:
    assert kind_of(command, top=top) == kind


def test_costs_count_what_a_family_does_within_the_block(tmp_path: Path) -> None:
    work = "sum(i * i for i in range(6_000_000))"
    child = subprocess.Popen([sys.executable, "-c", f"input(); {work}; print(flush=True); input()"], stdin=-1, stdout=-1)
    assert child.stdin is not None
    assert child.stdout is not None
    with Costs([child.pid], [tmp_path]) as costs:
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        (tmp_path / "file").write_bytes(bytes(2**20))
    child.communicate()
    assert costs.cpu_s["daemon"] > 0.1
    assert costs.cpu_s["jvm"] == costs.cpu_s["host"] == costs.cpu_s["python"] == 0
    assert costs.disk_mb == 1.0
    assert costs.memory_mb > 1


def test_rows_of_both_sides_are_compared_with_their_repetitions(tmp_path: Path) -> None:
    def write(name: str, *parts: list[int]) -> Path:
        (tmp_path / name).mkdir()
        for number, values in enumerate(parts):
            pq.write_table(pa.table({"a": values}), tmp_path / name / f"{number}.parquet")
        return tmp_path / name

    ours, empty = write("ours", [1, 2], [2]), write("empty")
    assert wrong_rows(ours, write("same", [2, 2, 1])) == (3, 0)
    assert wrong_rows(ours, write("once", [2, 1])) == (3, 1)
    assert wrong_rows(ours, write("other", [2, 1, 3])) == (3, 2)
    assert wrong_rows(ours, empty) == (3, 3)
    assert wrong_rows(empty, empty) == (0, 0)


def test_ratios_stand_beside_those_stored_for_as_many_rows(tmp_path: Path) -> None:
    def row(case: str, rows: int, ratio: float) -> dict[str, Any]:
        return {"case": case, "format": "csv", "rows": rows, "wall_ratio": ratio, "cpu_ratio": 2 * ratio, "wrong": 0}

    stored = tmp_path / "path.json"
    assert beside([row("filter", 10, 0.5)], stored)[0]["stored_wall_ratio"] is None
    stored.write_text(json.dumps({"rows": [row("filter", 10, 0.25), row("join", 10, 0.5)]}), encoding="utf-8")
    shown = beside([row("filter", 10, 0.5), row("join", 20, 0.5)], stored)
    assert [line["stored_wall_ratio"] for line in shown] == [0.25, None]
    assert [line["stored_cpu_ratio"] for line in shown] == [0.5, None]
    assert [line["cpu_ratio"] for line in shown] == [1.0, 1.0]


@pytest.mark.live
@pytest.mark.only_in_test_all("whole paths against bare Spark")
def test_a_short_run_gives_the_rows_of_bare_spark() -> None:
    command = [sys.executable, "-m", "sbon_cli.main", "bench", "path", "--quick", "--rows", "20000", "--json"]
    done = subprocess.run([*command, "--case", "aggregate", "--case", "join"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["case"] for row in rows] == ["aggregate", "join"]
    for row in rows:
        assert row["wrong"] == 0
        assert row["rows_out"] > 0
        assert row["batches"] > 0
        assert min(row[f"cpu_{kind}_s"] for kind in ("daemon", "host", "jvm", "python")) > 0
        assert min(row[name] for name in ("wall_ratio", "cpu_ratio", "disk_mb", "memory_mb", "bare_disk_mb")) > 0


def _count(query: str) -> int:
    return int(duckdb.sql(f"SELECT count(*) FROM ({query})").fetchall()[0][0])


def test_the_size_of_a_folder_bears_folders_that_vanish(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(bytes(2**20))
    ended = threading.Event()

    def churn() -> None:
        while not ended.is_set():
            for number in range(40):
                (tmp_path / str(number) / "deep").mkdir(parents=True, exist_ok=True)
            for number in range(40):
                shutil.rmtree(tmp_path / str(number))

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        sizes = [size_mb(tmp_path) for _ in range(300)]
    finally:
        ended.set()
        churning.join()
    assert set(sizes) == {1.0}
