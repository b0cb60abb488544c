"""One process opens a Spark session, closes it, and opens another."""

from __future__ import annotations

import pytest

from tests.sql.batch import batch_spark

pytestmark = pytest.mark.thorough("two starts of a JVM")


def test_a_second_session_has_a_jvm_of_its_own() -> None:
    pids = []
    for _ in range(2):
        with batch_spark() as batch:
            pids.append(batch._session.sparkContext._jvm.ProcessHandle.current().pid())
    assert pids[0] != pids[1]
