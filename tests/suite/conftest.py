"""The suite's input, written once."""

from __future__ import annotations

import pytest

from sbon_node.experiments.suite.streams import SuiteStream, write_streams


@pytest.fixture(scope="session")
def streams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SuiteStream]:
    return write_streams(tmp_path_factory.mktemp("input"))
