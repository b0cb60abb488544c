"""The suite while the node that took a submission is killed and its data directory deleted: nothing of the query is lost.

That node has neither sources nor operators nor the consumer. The others go on; any of them lists, follows and stops the query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from sbon.local.cluster import LocalCluster
from sbon.model import Submission
from sbon_lab.suite.cases import Case, cases
from sbon_lab.suite.reference import Reference, Row, differences
from sbon_lab.suite.streams import SITES, SuiteStream
from tests.live.world import wait_for
from tests.suite.runs import CONSUMER, PATIENCE_S, SUBMITTER

pytestmark = pytest.mark.live
OTHERS = (*SITES, CONSUMER)
NAMES = (
    "session_hosts",
    "aggregate_twice",
    "cte_join_aggregate",
    "exists_twice",
    "join_full_on_key",
    "join_left",
    "nexmark_q5",
    "nexmark_q7",
    "truncated_hour",
    "union_aggregated",
)
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("suite queries whose submitter is lost, on Spark")
CASES = [
    pytest.param(case, id=case.name, marks=() if case.name == NAMES[0] else ONLY_IN_TEST_ALL)
    for case in cases()
    if case.name in NAMES
]
SECONDS = 10.0
"""Duration of the streams, so that rows are under way when the submitter dies."""


def declare(cluster: LocalCluster, streams: Mapping[str, SuiteStream], case: Case) -> str:
    """Declare the streams that the case reads under other names, read slowly.

    Returns the beginning of a query that gives them their own names.
    """
    client, names = cluster[SITES[0]].client, []
    for name, stream in streams.items():
        if not re.search(rf"\b{name}\b", case.sql):
            continue
        paced = f"{case.name}_{name}"
        client.create_stream(msgspec.structs.replace(stream.declaration, name=paced))
        for source in stream.sources(seconds=SECONDS):
            client.attach_source(msgspec.structs.replace(source, stream=paced))
        names.append(f"{name} AS (SELECT * FROM {paced})")
    return f"WITH {', '.join(names)} "


def lose(cluster: LocalCluster) -> None:
    """Kill the submitter and delete its data."""
    cluster[SUBMITTER].kill()
    cluster[SUBMITTER].lose_data()


def rows_at(cluster: LocalCluster, node: str, query: str) -> list[Row]:
    """Follow the query at a node to its end."""
    with cluster[node].connect() as overlay:
        return [tuple(row.values()) for row in overlay.query(query).to_arrow().to_pylist()]


@pytest.mark.one_part_per_commit("deaths of live nodes", parts=6)
@pytest.mark.parametrize("case", CASES)
def test_a_query_outlives_the_node_that_took_it(
    case: Case, cluster: LocalCluster, gathered: dict[str, SuiteStream], reference: Reference
) -> None:
    beginning = declare(cluster, gathered, case)
    submission = Submission(sql=beginning + case.sql, strategy="producer", consumer=CONSUMER)
    submitter = cluster[SUBMITTER].client
    info, doomed = submitter.submitted(submission), submitter.submitted(submission)
    nodes = {info.consumer, *(operator.node for operator in info.operators)}
    assert SUBMITTER not in nodes
    with ThreadPoolExecutor() as pool:
        following = pool.submit(rows_at, cluster, SITES[1], info.id)
        wait_for(lambda: any(one.stats and one.stats.rows_in for one in submitter.query(info.id).operators), "rows are under way")
        lose(cluster)
        for node in OTHERS:
            client = cluster[node].client
            wait_for(
                lambda client=client: {info.id, doomed.id} <= {query.id for query in client.queries()},  # type: ignore[misc]
                f"both are listed at {node}",
            )
            assert client.query(info.id).state in ("running", "finished")
        assert cluster[SITES[2]].client.stop_query(doomed.id).state == "stopped"
        assert differences(following.result(PATIENCE_S), reference.answer(case)) == []
    for node in OTHERS:
        client = cluster[node].client
        wait_for(lambda client=client: client.query(info.id).state == "finished", f"{node} says that it is finished")  # type: ignore[misc]
        wait_for(lambda client=client: client.query(doomed.id).state == "stopped", f"{node} says that it is stopped")  # type: ignore[misc]
    cluster[SUBMITTER].start()
    cluster[SUBMITTER].wait_ready()
    cluster.wait_converged()
