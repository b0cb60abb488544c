"""One process opens a Spark session, closes it, and opens another."""

from __future__ import annotations

import pytest

from sbon_protocol.api.columns import Column
from tests.planning.sql.batch import batch_spark

KEYS = (Column("k", "bigint"),)

pytestmark = pytest.mark.only_in_test_all("two starts of a JVM")


async def test_a_second_session_has_a_jvm_of_its_own() -> None:
    pids = []
    for _ in range(2):
        with batch_spark() as batch:
            pids.append(batch._session.sparkContext._jvm.ProcessHandle.current().pid())
            await batch.analyse("SELECT k + 1 AS more FROM in0", (KEYS,))  # With samples in place of k.
    assert pids[0] != pids[1]
