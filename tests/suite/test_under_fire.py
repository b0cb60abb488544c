"""Some of the suite's queries while engines and a daemon die: the same rows."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from sbon.local.cluster import LocalCluster
from sbon.model import OperatorInfo
from sbon_lab.suite.cases import Case, cases
from sbon_lab.suite.reference import Reference, differences, stored
from sbon_lab.suite.streams import SITES, SuiteStream
from tests.live.family import engine_process
from tests.live.world import finished, wait_for
from tests.suite.runs import ASKED, ASKS_EVERY_S, PATIENCE_S, submission

pytestmark = [pytest.mark.live, pytest.mark.only_in_test_all("suite queries under fire on Spark")]

NAMES = ("session_hosts", "join_left", "aggregate_twice")
SAMPLE = [case for case in cases() if case.name in NAMES]
SECONDS = 90.0
"""Duration of the streams at first; a query that ends before its fault runs again at half that pace."""
ROUNDS = 3
STRUCK = SITES[1]
"""A node with sources; not the one that is asked how it goes."""


@dataclass(frozen=True)
class Run:
    case: Case
    query: str
    path: Path


class Battle:
    """Runs the sample on paced streams. Once rows flow through every operator with state, their JVMs are killed and so is the
    daemon of a site, which starts again."""

    def __init__(self, cluster: LocalCluster, streams: Mapping[str, SuiteStream], folder: Path) -> None:
        self._cluster, self._streams, self._folder = cluster, streams, folder
        self._node = cluster[ASKED]
        self.struck: dict[str, Run] = {}

    def fight(self) -> None:
        for number in range(ROUNDS):
            pending = [case for case in SAMPLE if case.name not in self.struck]
            if pending:
                self._round(number, pending)

    def _round(self, number: int, pending: list[Case]) -> None:
        names = self._declare(number)
        with ThreadPoolExecutor(len(pending)) as pool:
            runs = list(pool.map(lambda case: self._submit(case, names, number), pending))
        at = {operator.node for run in runs for operator in self._with_state(run)}
        hit = self._flowing(runs)
        for node in at:
            engine_process(self._cluster[node], "jvm").kill()
        self._cluster[STRUCK].kill(signal.SIGKILL)
        self._cluster[STRUCK].restart()
        for run in runs:
            wait_for(lambda run=run: self._over(run), f"{run.case.name} is finished", PATIENCE_S)  # type: ignore[misc]
        self.struck |= {run.case.name: run for run in runs if run.case.name in hit}

    def _declare(self, number: int) -> dict[str, str]:
        """The streams once more, read slowly; their names by those in the queries."""
        names = {}
        for name, stream in self._streams.items():
            names[name] = f"paced_{number}_{name}"
            self._node.client.create_stream(msgspec.structs.replace(stream.declaration, name=names[name]))
            for source in stream.sources(seconds=SECONDS * 2**number):
                self._node.client.attach_source(msgspec.structs.replace(source, stream=names[name]))
        return names

    def _submit(self, case: Case, names: Mapping[str, str], number: int) -> Run:
        path = self._folder / f"{case.name}_{number}.parquet"
        slow = ", ".join(f"{name} AS (SELECT * FROM {paced})" for name, paced in names.items())
        paced = msgspec.structs.replace(submission(case, path), sql=f"WITH {slow} {case.sql}")
        return Run(case, self._node.client.submitted(paced).id, path)

    def _with_state(self, run: Run) -> list[OperatorInfo]:
        info = self._node.client.query(run.query)
        assert info.plan is not None
        stateful = {one.id for one in info.plan.operators if any(read.event_time for read in one.inputs)}
        return [operator for operator in info.operators if operator.id in stateful]

    def _flowing(self, runs: list[Run]) -> set[str]:
        """Wait until every operator with state has taken rows; return the queries whose rows are still under way."""

        def rows(run: Run) -> list[int]:
            return [operator.stats.rows_in for operator in self._with_state(run)]

        before = {run.case.name: rows(run) for run in runs}

        def more(run: Run) -> bool:
            now = rows(run)
            return all(count > 0 and count != then for count, then in zip(now, before[run.case.name], strict=True))

        for run in runs:
            wait_for(lambda run=run: self._over(run) or more(run), f"rows of {run.case.name} flow", PATIENCE_S)  # type: ignore[misc]
        return {run.case.name for run in runs if not self._over(run)}

    def _over(self, run: Run) -> bool:
        time.sleep(ASKS_EVERY_S)
        return finished(self._node, run.query)


@pytest.fixture(scope="package")
def battle(cluster: LocalCluster, streams: dict[str, SuiteStream], tmp_path_factory: pytest.TempPathFactory) -> Battle:
    battle = Battle(cluster, streams, tmp_path_factory.mktemp("battle"))
    battle.fight()
    return battle


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_rows_are_the_same_when_engines_and_a_daemon_died_amid_them(case: Case, battle: Battle, reference: Reference) -> None:
    assert differences(stored(battle.struck[case.name].path), reference.answer(case)) == []
