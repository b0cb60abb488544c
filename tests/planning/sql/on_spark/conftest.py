"""One JVM for the tests of this folder that run batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.planning.sql.batch import Batch, batch_spark


@pytest.fixture(scope="package")
def spark() -> Iterator[Batch]:
    with batch_spark() as batch:
        yield batch
