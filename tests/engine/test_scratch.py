"""Temporary files of an engine: in the data directory, and gone with the next start, however the last engine ended."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from sbon_node.base.clock import Clock
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_node.engine.spark.engine_process import SCRATCH
from tests.engine.shared.test_spark import FRAGMENT, SCHEMA, spec, started, table
from tests.engine.states import States


@pytest.mark.live
@pytest.mark.only_in_test_all("files of killed engines")
async def test_killed_engines_leave_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the system keeps them, nor for longer than until the next one: in a folder whose name Spark would cut in two."""
    system, data = tmp_path / "system", tmp_path / "data, with a comma"
    system.mkdir()
    data.mkdir()
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(variable, str(system))
    states = States()
    engine = SparkEngine(EngineSettings(restart_s=0.1), data, Clock.real(), states)
    port = await started(engine, data, spec("busy", "partitioned"))
    await port.feed(table(0, 1000))
    await port.wait_visible(0)
    first = {path.name for path in (data / SCRATCH).iterdir()}
    assert any(name.startswith(("spark-", "blockmgr-")) for name in first)

    _kill(engine)
    await states.wait("busy", "running", 2)
    await port.feed(table(1000, 1000), ended=True)
    await port.wait_ended()
    second = {path.name for path in (data / SCRATCH).iterdir()}
    assert not {name for name in first if name.startswith(("spark-", "blockmgr-"))} & second
    assert (await engine.analyse(FRAGMENT, (SCHEMA,)))[0].name == "twice"
    await engine.close()
    assert list(system.iterdir()) == []
    assert [path.name for path in (data / SCRATCH).iterdir() if path.name.startswith(("spark-", "blockmgr-"))] == []


def _kill(engine: SparkEngine) -> None:
    """With a signal that nothing is done about."""
    assert engine.engine_pid is not None
    family = [psutil.Process(engine.engine_pid), *psutil.Process(engine.engine_pid).children(recursive=True)]
    for process in family:
        with suppress(psutil.NoSuchProcess):  # its parent was its reason to live
            process.kill()
