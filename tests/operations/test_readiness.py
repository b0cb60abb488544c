"""Whether a node is ready, and the order of the reasons against it."""

from __future__ import annotations

import pytest

from sbon.client import UNREADY, unready
from sbon_node.operations.readiness import Condition, readiness_of
from sbon_protocol.errors import SbonError

WELL = Condition(
    engine="running", free_bytes=10**12, free_inodes=10**6, alone=False, drained=False, failed=(), quarantined=(), waiting=()
)

CASES = [
    ({}, True, []),
    ({"engine": "idle"}, True, []),
    ({"engine": "starting"}, True, []),
    ({"engine": "failed: no Java"}, False, ["engine-failed"]),
    ({"free_bytes": 1000}, False, ["low-disk"]),
    ({"free_inodes": 3}, False, ["low-disk"]),
    ({"unstored": "no space for more records"}, False, ["not-stored"]),
    ({"alone": True}, True, ["alone"]),
    ({"drained": True}, True, ["drained"]),
    ({"failed": ("q1.1: it broke",)}, True, ["parts-failed"]),
    ({"quarantined": ("q1.1",)}, True, ["operators-quarantined"]),
    ({"waiting": ("q1.1: waits for its record",)}, True, ["operators-wait"]),
    (
        {"drained": True, "alone": True, "engine": "failed: x", "free_bytes": 0, "waiting": ("a",), "failed": ("b",)},
        False,
        ["low-disk", "engine-failed", "alone", "parts-failed", "operators-wait", "drained"],
    ),
]


@pytest.mark.parametrize("changed, ready, codes", CASES)
def test_the_worst_reason_comes_first(changed: dict[str, object], ready: bool, codes: list[str]) -> None:
    found = readiness_of(WELL._replace(**changed))  # type: ignore[arg-type]
    assert (found.ready, [reason.code for reason in found.reasons]) == (ready, codes)
    assert all((reason.code in UNREADY) == (reason.weight == "unready") for reason in found.reasons)


def test_a_failed_part_is_named() -> None:
    (reason,) = readiness_of(WELL._replace(failed=("q1.1: it broke", "q2.1: so did this"))).reasons
    assert reason.message == "q1.1: it broke; q2.1: so did this"


def test_a_refusal_is_read_back_as_the_reasons_it_came_of() -> None:
    refusal = SbonError("low-disk", "1 MB is left", hint="free some", details=("low-disk: 1 MB is left", "alone: nobody: here"))
    found = unready(refusal)
    assert [(r.code, r.weight, r.message) for r in found.reasons] == [
        ("low-disk", "unready", "1 MB is left"),
        ("alone", "impaired", "nobody: here"),
    ]
    assert not found.ready
