"""The demo as a newcomer runs it: what it says of its rows, and that nothing of it stays, however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import duckdb
import psutil
import pytest

from sbon.local.processes import MARK, processes_of
from sbon.local.wide_area import cities
from sbon_cli.commands.demo.demo import CONSUMER, QUERIES, DemoQuery, Input, compare, sources_of, write_inputs
from sbon_cli.commands.demo.nycflights import AIRPORTS, FLIGHTS
from sbon_lab.simulation.cluster import SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.outcome import Ended, run_cluster
from sbon_lab.simulation.query_run import QueryRun, RunQuery

ROW = re.compile(r"2013-\d\d-\d\dT\S+ +\w\w +\d+ ")


class Demo:
    """The process; ``said`` are the lines it printed on stderr so far."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sbon_cli.main", "demo", "--json", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self.mark, self.cluster = "", Path()
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        """All of stderr from one reader: ``communicate`` would lose what a reader of lines has buffered."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, wanted: Callable[[str], object]) -> None:
        """Until a line is such; takes the cluster's mark and folder from the nodes, which run once a line counts them."""
        while (line := self._lines.get()) is not None:
            self.said.append(line.rstrip())
            if not self.mark and "on loopback" in line:
                self._know_cluster()
            if wanted(line):
                return
        pytest.fail("it ended before:\n" + "\n".join(self.said))

    def end(self) -> tuple[int, str]:
        """Its exit code and what it printed on stdout; nothing may be left of it."""
        assert self.process.stdout is not None
        output = self.process.stdout.read()
        self.close()
        while (line := self._lines.get()) is not None:
            self.said.append(line.rstrip())
        assert self.mark
        assert processes_of(self.mark, self.cluster) == []
        assert not self.cluster.exists()
        assert list(self.folder.iterdir()) == []
        return self.process.returncode, output

    def close(self) -> None:
        """Wait until the process and its output have ended."""
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _know_cluster(self) -> None:
        node = next(p for p in psutil.Process(self.process.pid).children() if "--data-dir" in p.cmdline())
        data_dir = Path(node.cmdline()[node.cmdline().index("--data-dir") + 1])
        self.mark, self.cluster = node.environ()[MARK], data_dir.parents[1]
        assert len(processes_of(self.mark, self.cluster)) >= 6
        assert self.cluster.is_dir()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*arguments: str) -> Demo:
        started.append(Demo(tmp_path, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.close()


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
@pytest.mark.live
@pytest.mark.parametrize(
    "strategy", ["consumer", pytest.param("producer", marks=pytest.mark.only_in_test_all("demos with an engine at each source"))]
)
def test_the_demo_checks_its_rows_and_leaves_nothing(demo: Callable[..., Demo], strategy: str) -> None:
    """With one engine, where all rows are sent to the consumer, or with several, of which most rows do not leave the nodes."""
    shown = demo("--seconds", "2", "--days", "20", "--strategy", strategy)
    shown.wait_for(lambda line: "6 nodes" in line)
    code, output = shown.end()
    assert code == 0, "\n".join(shown.said)
    text = "\n".join(shown.said)
    assert all(f"flights, weather of {airport}" in text for airport in AIRPORTS)
    assert len([line for line in shown.said if ROW.match(line)]) == 4 * (3 + 1)  # of the filter's branches, and of carriers
    results = json.loads(output)["rows"]
    assert [result["query"] for result in results] == [query.name for query in QUERIES]
    for result in results:
        assert (result["strategy"], result["wrong"]) == (strategy, 0)
        assert result["rows"] > 0
        assert 0 < result["ratio"] <= 1
        assert result["ratio"] < 1 or strategy == "consumer"
        assert result["ratio"] == pytest.approx(result["byte_ms"] / result["baseline_byte_ms"])
        assert f"{result['rows']:,} rows, 0 wrong" in text
        assert f"{result['ratio']:.1%} of sending all rows to" in text


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
@pytest.mark.live
@pytest.mark.parametrize(
    "moment, signums",
    [
        pytest.param(lambda line: "reading the query" in line, (signal.SIGINT, signal.SIGINT, signal.SIGTERM), id="submitting"),
        pytest.param(ROW.match, (signal.SIGINT,), id="rows arrive", marks=pytest.mark.only_in_test_all("interrupted demos")),
    ],
)
def test_an_interrupted_demo_leaves_nothing(
    demo: Callable[..., Demo], moment: Callable[[str], object], signums: tuple[signal.Signals, ...]
) -> None:
    """While its first engine starts, and once all operators run, at the consumer: one engine, not three."""
    shown = demo("--seconds", "3600", "--strategy", "consumer")
    shown.wait_for(moment)
    for signum in signums:
        os.kill(shown.process.pid, signum)
    ended = shown.end()
    assert ended == (130, ""), "\n".join(shown.said)
    assert "Traceback" not in "\n".join(shown.said)


# -- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.only_in_test_all("demos in virtual time")
def test_the_demo_and_duckdb_run_the_same_queries(tmp_path: Path) -> None:
    """In virtual time, all three queries at once."""
    inputs = write_inputs(tmp_path / "input", days=4)
    area = cities()
    play = QueryRun(
        queries=tuple(RunQuery(query.name, query.sql) for query in QUERIES),
        streams=tuple(one.declaration for one in inputs),
        sources=tuple(source for one in inputs for source in sources_of(one, seconds=2.0, days=4)),
        consumer=CONSUMER,
    )
    found: dict[str, Any] = {}

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        return SimulatedCluster(loop, 1, area.names, root)

    async def run(cluster: SimulatedCluster, root: Path) -> Ended:
        found.update(await play.run(cluster, root))
        return Ended(0, "finished")

    assert not run_cluster(build, run, seed=1, max_time_s=3600.0, replay="this test").failure
    for query in QUERIES:
        rows = [tuple(v.isoformat() if isinstance(v, datetime) else v for v in row) for row in found[query.name]]
        assert rows
        assert compare(rows, query, inputs) == 0


# -- the check of rows ------------------------------------------------------------------------------------------------


LATE = QUERIES[0]


@pytest.fixture
def inputs(tmp_path: Path) -> list[Input]:
    """One late flight of each airport, one of them twice, and one in time."""
    late = "2013-01-0{day} 10:00:00,AA,{day},N1,{airport},BOS,200,150,60,300\n"
    on_time = "2013-01-05 10:00:00,AA,9,N1,EWR,BOS,0,0,60,300\n"
    header = ",".join(column.name for column in FLIGHTS.schema) + "\n"
    files = {airport: tmp_path / f"{airport}.csv" for airport in AIRPORTS}
    for day, (airport, file) in enumerate(files.items(), start=1):
        line = late.format(day=day, airport=airport)
        file.write_text(header + line + (line if airport == "LGA" else on_time))
    return [Input(FLIGHTS, files, dict.fromkeys(AIRPORTS, 2))]


def arrived(inputs: list[Input]) -> list[tuple[Any, ...]]:
    """The right rows as a follower gets them."""
    found = duckdb.read_csv([str(f) for f in inputs[0].files.values()], header=True)
    rows = duckdb.sql(LATE.sql.replace("FROM flights", "FROM found")).fetchall()
    assert found.shape == (6, len(FLIGHTS.schema))
    return [(f"{row[0].isoformat()}Z", *row[1:]) for row in rows]


def test_right_rows_are_right_in_any_order(inputs: list[Input]) -> None:
    rows = arrived(inputs)
    assert len(rows) == 4
    assert compare(rows, LATE, inputs) == compare(rows[::-1], LATE, inputs) == 0


def test_a_mean_may_differ_in_its_last_digit_and_no_other(inputs: list[Input]) -> None:
    third = 1 / 3
    query = DemoQuery("mean", "", "", "SELECT 1 / 3 AS mean")
    assert compare([(third,)], query, inputs) == compare([(third + 2**-54,)], query, inputs) == 0
    assert compare([(third + 1e-9,)], query, inputs) == 2


@pytest.mark.parametrize(
    "wrong, count",
    [
        (lambda rows: rows[1:], 1),
        (lambda rows: [*rows, rows[0]], 1),
        (lambda rows: [r for i, r in enumerate(rows) if r not in rows[:i]], 1),
        (lambda rows: [(*rows[0][:-1], rows[0][-1] + 1), *rows[1:]], 2),
        (lambda rows: [(rows[0][0].replace(":00Z", ":00.001Z"), *rows[0][1:]), *rows[1:]], 2),
        (lambda rows: [], 4),
    ],
    ids=["missing", "doubled", "one of two equal ones missing", "altered", "a millisecond later", "none"],
)
def test_wrong_rows_are_counted(inputs: list[Input], wrong: Callable[[Any], Any], count: int) -> None:
    assert compare(wrong(arrived(inputs)), LATE, inputs) == count
