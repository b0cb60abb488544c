"""The suite's input, its answers, and one cluster on which all of it runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon_lab.suite.reference import Reference
from sbon_lab.suite.streams import SITES, SuiteStream, write_streams
from tests.suite.runs import CONSUMER, SUBMITTER, Runs

SETTINGS = {"engine.max_operators": 30, "control.cores": 8.0, "connectors.linger_s": 0.5}
"""Room for several queries; few frames a second of streams with a pace, and so few batches."""


@pytest.fixture(scope="package")
def streams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SuiteStream]:
    return write_streams(tmp_path_factory.mktemp("input"))


@pytest.fixture(scope="package")
def reference(streams: dict[str, SuiteStream]) -> Reference:
    return Reference(streams)


@pytest.fixture(scope="package")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SuiteStream]:
    """The same rows at two sites."""
    return write_streams(tmp_path_factory.mktemp("gathered"), SITES[:2])


@pytest.fixture(scope="package")
def cluster(gathered: dict[str, SuiteStream], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with two nodes for sources, whose engines can run several queries, one consumer, and a node without a part."""
    folder, overrides = tmp_path_factory.mktemp("cluster"), {**SHORT_LIVED, **SETTINGS}
    with LocalCluster([*SITES, CONSUMER, SUBMITTER], folder=folder, overrides=overrides) as cluster:
        client = cluster.nodes[0].client
        for stream in gathered.values():
            client.create_stream(stream.declaration)
            for source in stream.sources():
                client.attach_source(source)
        yield cluster


@pytest.fixture(scope="package")
def runs(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Runs]:
    """All selected queries, some at a time."""
    chosen = [item.callspec.params["case"] for item in request.session.items if "runs" in getattr(item, "fixturenames", ())]
    with Runs(cluster, tmp_path_factory.mktemp("output"), chosen) as runs:
        yield runs
