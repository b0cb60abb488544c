"""Queries that run side by side on one cluster, each into a file."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from sbon.local.cluster import LocalCluster
from sbon.model import QueryInfo, SinkSpec, Submission
from sbon_lab.suite.cases import Case
from sbon_lab.suite.streams import SITES
from sbon_protocol.errors import SbonError
from tests.live.world import finished, wait_for

CONSUMER = "home"
SUBMITTER = "office"
"""A node that only takes submissions, and may be lost."""
ASKED = SITES[0]
"""The node at which queries are submitted: one with sources, so that no engine starts only to plan."""
AT_A_TIME = 3
ASKS_EVERY_S = 0.3
PATIENCE_S = 600.0


class Runs:
    """Runs ``chosen`` in that order, a few at a time; a query that has ended has released its capacity."""

    def __init__(self, cluster: LocalCluster, folder: Path, chosen: Sequence[Case]) -> None:
        self._cluster, self._folder, self._chosen = cluster, folder, chosen
        self._pool = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="suite")
        self._abandoned = threading.Event()
        self._started: dict[str, Future[tuple[QueryInfo, Path]]] = {}

    def __enter__(self) -> Self:
        self._started = {case.name: self._pool.submit(self._run, case) for case in self._chosen}
        return self

    def __exit__(self, *_: object) -> None:
        self._abandoned.set()
        self._pool.shutdown(cancel_futures=True)

    def over(self, case: Case) -> tuple[QueryInfo, Path]:
        """Wait for a query to finish; return its record and its rows' folder."""
        return self._started[case.name].result()

    def _run(self, case: Case) -> tuple[QueryInfo, Path]:
        node = self._cluster[ASKED]
        path = self._folder / f"{case.name}.parquet"
        info = node.client.submitted(submission(case, path))

        def over() -> bool:
            if self._abandoned.wait(ASKS_EVERY_S):  # every node with an operator is asked each time
                raise SbonError("query-over", f"{case.name} was given up")
            return finished(node, info.id)

        wait_for(over, f"{case.name} is finished", PATIENCE_S)
        return info, path


def submission(case: Case, path: Path) -> Submission:
    """Filters stay at the sources' nodes, and operators with state run at one of them."""
    sink = SinkSpec(kind="file", options={"path": str(path), "format": "parquet"})
    return Submission(sql=case.sql, strategy="producer", consumer=CONSUMER, sink=sink)
