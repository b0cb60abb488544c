"""Constructs that reach beyond a fragment's rows run on an engine process without its guard, and not on the real one.

Each construct leaves a mark where it runs: a file, a system property, a setting, a table, an added jar, another file's text in
the output. That it does is shown first, or its absence would show nothing.
"""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
import pytest_asyncio

from sbon_node.base.clock import Clock
from sbon_node.engine.settings import EngineSettings
from sbon_node.engine.spark.adapter import SparkEngine
from sbon_protocol.api.columns import Column
from sbon_protocol.api.operators import InputSpec, OperatorSpec
from sbon_protocol.errors import SbonError
from tests.engine.shared.bench import Bench
from tests.engine.states import States
from tests.engine.toy_port import ToyPort
from tests.engine.watched_engine import EFFECTS, MARK

pytestmark = pytest.mark.live
in_one_loop = pytest.mark.asyncio(loop_scope="session")
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("fragments on an engine process without its guard")

SECRET = "what only this node's user may read"
INVOKED = "'java.lang.System', 'setProperty', '" + MARK + "{name}', 'x'"

RUNS_ON_ROWS = {
    "reflect": f"SELECT reflect({INVOKED}) AS a FROM in0",
    "java-method": f"SELECT java_method({INVOKED}) AS a FROM in0",
    "try-reflect": f"SELECT try_reflect({INVOKED}) AS a FROM in0",
    "transform": "SELECT TRANSFORM (k) USING 'tee {folder}/{name}' AS (y) FROM in0",
    "path": "SELECT value FROM in0 CROSS JOIN text.`{folder}/secret`",
    "path-within": "SELECT (SELECT max(value) FROM text.`{folder}/secret`) AS value FROM in0",
}
"""Run when rows come."""
RUNS_AT_ONCE = {
    "set": "SET {mark} = changed",
    "add-jar": "ADD JAR '{folder}/add-jar.jar'",
    "add-file": "ADD FILE '{folder}/secret'",
    "create-table": "CREATE TABLE created (a INT) USING parquet",
    "execute-immediate": "EXECUTE IMMEDIATE 'CREATE TABLE immediate (a INT) USING parquet'",
    "insert-directory": "INSERT OVERWRITE LOCAL DIRECTORY '{folder}/{name}' USING parquet SELECT 1 AS a",
}
"""Statements, which Spark runs where it is to make a query of them; and then there is none."""


class Side:
    """An engine, what it is given, and where that would leave marks; ``data`` is the engine's folder."""

    def __init__(self, folder: Path, engine: SparkEngine, data: Path) -> None:
        self.folder, self.engine, self.data = folder, engine, data
        self.ports: dict[str, ToyPort] = {}
        self._looks = itertools.count()
        (folder / "secret").write_text(SECRET)
        with zipfile.ZipFile(folder / "add-jar.jar", "w") as jar:
            jar.writestr("mark", "x")

    async def give(self, name: str, fragment: str) -> ToyPort:
        """Instantiates an operator for which there are rows; raises :class:`SbonError` as the engine does."""
        port, checkpoint = self.ports.setdefault(name, ToyPort()), self.data / "operators" / name
        await port.feed(pa.table({"k": pa.array([1, 2], pa.int64())}), ended=True)
        checkpoint.mkdir(parents=True)
        schema = (Column("k", "bigint"),)
        text = fragment.format(folder=self.folder, name=name, mark=f"{MARK}{name}")
        spec = OperatorSpec(
            id=name, query="q", fragment=text, inputs=(InputSpec(stream="in", node="n", schema=schema),), schema=()
        )
        await self.engine.instantiate(spec, port, checkpoint)
        return port

    async def marks(self) -> set[str]:
        """Columns and files that were not there before."""
        found = {column.name for column in await self.engine.analyse(f"{EFFECTS}{next(self._looks)}", ())}
        found |= {path.name for path in self.folder.iterdir()} - {"secret", "add-jar.jar"}
        return found | {path.name for path in (self.data / "spark-warehouse").glob("*")}


MARKS = {name: f"{MARK}{name}" for name in ("reflect", "java-method", "try-reflect", "set")} | {
    "transform": "transform",
    "insert-directory": "insert-directory",
    "add-jar": "add-jar.jar",
    "add-file": "secret",
    "create-table": "created",
    "execute-immediate": "immediate",
}
"""Marks that constructs leave where they have run; other constructs leave theirs in the output."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def unguarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Side]:
    folder, data = (tmp_path_factory.mktemp(name) for name in ("unguarded", "data"))
    module = "tests.engine.unguarded_engine"
    engine = SparkEngine(EngineSettings(jit="c1", max_restarts=0), data, Clock.real(), States(), module=module)
    yield Side(folder, engine, data)
    await engine.close()


@pytest.fixture
def guarded(tmp_path: Path, bench: Bench) -> Side:
    return Side(tmp_path, bench.engine, bench.folder)


@ONLY_IN_TEST_ALL
@in_one_loop
@pytest.mark.parametrize("name", RUNS_ON_ROWS)
async def test_without_the_guard_it_runs_on_rows(unguarded: Side, name: str) -> None:
    port = await unguarded.give(name, RUNS_ON_ROWS[name])
    rows = await port.wait_ended()
    assert MARKS[name] in await unguarded.marks() if name in MARKS else rows["value"].to_pylist() == [SECRET] * 2
    await unguarded.engine.destroy(name)


@ONLY_IN_TEST_ALL
@in_one_loop
@pytest.mark.parametrize("name", RUNS_AT_ONCE)
async def test_without_the_guard_it_runs_at_once(unguarded: Side, name: str) -> None:
    with pytest.raises(SbonError):  # there is no query to start
        await unguarded.give(name, RUNS_AT_ONCE[name])
    assert MARKS[name] in await unguarded.marks()


@in_one_loop
@pytest.mark.parametrize("name, fragment", [*RUNS_ON_ROWS.items(), *RUNS_AT_ONCE.items()])
async def test_the_host_refuses_it_and_nothing_ran(guarded: Side, name: str, fragment: str) -> None:
    with pytest.raises(SbonError) as refusal:
        await guarded.give(name, fragment)
    assert refusal.value.code == "forbidden-sql"
    assert await guarded.marks() == set()
    assert guarded.ports[name].output == {}


@ONLY_IN_TEST_ALL
def test_spark_leaves_nothing_where_it_was_started_from(unguarded: Side) -> None:
    assert (unguarded.data / "spark-warehouse").is_dir()
    assert not (Path.cwd() / "spark-warehouse").exists()
