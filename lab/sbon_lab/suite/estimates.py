"""Estimated against measured rows of each operator of the suite (``sbon experiment estimates``).

Whole daemons run the queries in virtual time over files at full speed, without declared rates. A plan's estimate is the one
without measurements. A rate depends on the machine, so that rows are compared: the estimated rate, times the time in which the
estimated rates of the sources give the sources' rows.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from sbon_lab.simulation.cluster import CONFIG, SimulatedCluster
from sbon_lab.simulation.loop import VirtualLoop
from sbon_lab.simulation.outcome import Ended, run_cluster
from sbon_lab.simulation.query_run import QueryRun, RunQuery
from sbon_lab.suite.cases import Case
from sbon_lab.suite.streams import SITES, SuiteStream, write_streams
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.engine.settings import EngineSettings
from sbon_protocol.api.catalogue import SourceDeclaration
from sbon_protocol.api.explanations import Explanation
from sbon_protocol.api.plan import Plan, PlannedOperator
from sbon_protocol.errors import SbonError

CONSUMER = "hub"
LATENCY_S = 0.02
AT_ONCE = 4
"""Queries of one cluster, whose samples are taken before the rows of the others have passed."""
NEAR, FAR = 2.0, 5.0


class Judged(NamedTuple):
    """The estimated and measured rows of an operator; ``ratio`` is the greater over the less, each at least one row."""

    query: str
    operator: str
    kind: str
    estimated_rows: float
    measured_rows: int

    @property
    def ratio(self) -> float:
        estimated, measured = max(self.estimated_rows, 1.0), max(float(self.measured_rows), 1.0)
        return max(estimated, measured) / min(estimated, measured)


def experiment(
    cases: Sequence[Case],
    *,
    sample_rows: int = ConnectorSettings().sample_rows,
    seed: int = 1,
    operators: bool = False,
    notify: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Return ``{"name", "rows"}``: a row for each kind of operator, or for each operator. Raises ``simulation-failed``."""
    judged: list[Judged] = []
    with tempfile.TemporaryDirectory(prefix="sbon-estimates-") as folder:
        streams = write_streams(Path(folder))
        for first in range(0, len(cases), AT_ONCE):
            notify(f"{first} of {len(cases)} queries")
            judged += run(cases[first : first + AT_ONCE], streams, sample_rows=sample_rows, seed=seed)
    return {"name": "estimates", "rows": [_line(one) for one in judged] if operators else summary(judged)}


def run(cases: Sequence[Case], streams: Mapping[str, SuiteStream], *, sample_rows: int, seed: int) -> list[Judged]:
    """Run some queries side by side on a cluster, and judge their operators. Raises ``simulation-failed``."""
    sources = [_undeclared(source) for stream in streams.values() for source in stream.sources()]
    queries = tuple(RunQuery(case.name.replace("_", "-"), case.sql, "producer") for case in cases)
    declared = tuple(stream.declaration for stream in streams.values())
    play = QueryRun(queries, declared, tuple(sources), consumer=CONSUMER)
    config = msgspec.structs.replace(
        CONFIG,
        connectors=msgspec.structs.replace(CONFIG.connectors, sample_rows=sample_rows),
        engine=EngineSettings(max_operators=100),
        control=msgspec.structs.replace(CONFIG.control, cores=64.0, memory_mb=64_000.0),
    )
    judged: list[Judged] = []

    def build(loop: VirtualLoop, root: Path) -> SimulatedCluster:
        return SimulatedCluster(loop, seed, (*SITES, CONSUMER), root, config=config, latency=lambda a, b: LATENCY_S)

    async def play_and_judge(cluster: SimulatedCluster, root: Path) -> Ended:
        await play.run(cluster, root)
        for query in queries:
            daemon = cluster.nodes[CONSUMER].daemon
            info = await cluster.answer(CONSUMER, daemon.queries.lookup.query(query.name))
            assert info.plan is not None
            judged.extend(_judged(info.plan, await cluster.answer(CONSUMER, daemon.queries.explainer.query(query.name))))
        return Ended(0, "finished")

    names = " ".join(f"--query {case.name}" for case in cases)
    replay = f"sbon experiment estimates {names} --seed {seed}"
    outcome = run_cluster(build, play_and_judge, seed=f"estimates/{seed}", max_time_s=3600.0, replay=replay)
    if outcome.failure:
        raise SbonError("simulation-failed", outcome.failure, where="estimates")
    return judged


def _undeclared(source: SourceDeclaration) -> SourceDeclaration:
    return msgspec.structs.replace(source, rows_s=None, row_bytes=None)


def _judged(plan: Plan, explanation: Explanation) -> Iterable[Judged]:
    components = {component.id: component for component in explanation.components}
    sources = [components[planned.source.id] for planned in plan.sources]
    estimated_s = sum(source.rows or 0 for source in sources) / sum(source.estimated.rows_s or 0.0 for source in sources)
    for operator in plan.operators:
        component = components[operator.id]
        assert component.estimated.rows_s is not None
        estimated = component.estimated.rows_s * estimated_s
        yield Judged(explanation.query, operator.id, kind_of(operator), estimated, component.rows or 0)


def kind_of(operator: PlannedOperator) -> str:
    """Return ``join``, ``aggregate``, ``partial aggregate`` or ``filter``."""
    if len({read.view for read in operator.inputs}) > 1:
        return "join"
    if not operator.has_state:
        return "filter"
    return "partial aggregate" if operator.id.rpartition(".")[2].startswith("b") else "aggregate"


def summary(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Return a line for each kind of operator, and one for all: how far estimates are off."""
    kinds = sorted({one.kind for one in judged})
    each = [(kind, [one for one in judged if one.kind == kind]) for kind in kinds]
    return [_summary(kind, of_kind) for kind, of_kind in [*each, ("all", list(judged))] if of_kind]


def _summary(kind: str, judged: Sequence[Judged]) -> dict[str, Any]:
    ratios = [one.ratio for one in judged]
    worst = max(judged, key=lambda one: one.ratio)
    return {
        "kind": kind,
        "operators": len(judged),
        "median_ratio": round(statistics.median(ratios), 3),
        "p90_ratio": round(float(np.percentile(ratios, 90)), 3),
        "worst_ratio": round(worst.ratio, 1),
        "worst_query": worst.query,
        "within_2": round(sum(ratio <= NEAR for ratio in ratios) / len(ratios), 3),
        "within_5": round(sum(ratio <= FAR for ratio in ratios) / len(ratios), 3),
    }


def _line(one: Judged) -> dict[str, Any]:
    return {
        "query": one.query,
        "operator": one.operator,
        "kind": one.kind,
        "estimated_rows": round(one.estimated_rows, 1),
        "measured_rows": one.measured_rows,
        "ratio": round(one.ratio, 3),
    }
