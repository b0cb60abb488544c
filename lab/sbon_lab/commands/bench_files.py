"""Streams over the files of a benchmark, on a local cluster."""

import importlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from sbon import SbonError
from sbon.client import Client
from sbon.local.cluster import LocalCluster
from sbon.model import SourceDeclaration

PATIENCE_S = 30.0
"""Longest time in seconds for an ended query to let go of its streams."""


@contextmanager
def streams_over_files(cluster: LocalCluster, inputs: Any, run_name: str, streams: Sequence[str]) -> Iterator[dict[str, str]]:
    """Declare streams of this run's own over ``inputs``; yield their names by those in the SQL, then drop them.

    The rows of an earlier run's streams would come from the nodes' disks instead of the files.
    """
    client = cluster.nodes[0].client
    declared: Any = importlib.import_module("sbon_lab.bench.path.cases").STREAMS
    names = {stream: f"{stream}_{run_name}" for stream in streams}
    for stream, own in names.items():
        client.create_stream(msgspec.structs.replace(declared[stream], name=own))
        for node in cluster.nodes:
            options = {"path": str(inputs.file(stream, node.name))}
            client.attach_source(SourceDeclaration(stream=own, name=node.name, node=node.name, connector="file", options=options))
    yield names
    for own in names.values():
        _drop(client, own)


def _drop(client: Client, stream: str) -> None:
    """Drop a stream once the query that has just ended has let go of it."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return client.drop_stream(stream)
        except SbonError as error:
            if error.code != "stream-in-use" or time.monotonic() > deadline_s:
                raise
        time.sleep(0.05)
