"""A full disk under a node's records: the node continues, reports it, and loses nothing acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.test_no_space import told_by

pytestmark = pytest.mark.live


def test_a_node_without_room_for_records_continues_and_keeps_its_promises(tmp_path: Path) -> None:
    told = told_by("tests.live.full_records", tmp_path)

    assert told["refused"] == "disk-full"
    assert told["runs"]
    assert {"low-disk", "not-stored"} <= set(told["while_full"])
    assert any("records cannot be stored" in found for found in told["doctor"])
    assert told["known"] == told["acknowledged"]
