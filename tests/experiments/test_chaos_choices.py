"""``sbon bench chaos`` strikes only where the queries can survive it: disks that may be lost, and the gate of submissions."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from sbon.model import BackupInfo, Loss, OperatorInfo, QueryInfo, Survival
from sbon_lab.chaos.asking import Gate
from sbon_lab.chaos.injector import why_not_lost
from sbon_protocol.api.states import backup_states, operator_states

OPERATOR = OperatorInfo(
    id="q.o1",
    node="e",
    fragment="",
    state=operator_states.RUNNING,
    durability="replicated",
    backup=BackupInfo(state=backup_states.CURRENT, node="f", batch=3),
)
QUERY = QueryInfo(
    id="q", sql="", state="running", acceptors=("a", "b", "e"), operators=(OPERATOR,), survival=Survival(any_node=True)
)
LOCAL = Loss(node="e", part="operator", name="q.o1", why="local")


def query(**fields: Any) -> QueryInfo:
    return msgspec.structs.replace(QUERY, **fields)


@pytest.mark.parametrize("node", ["e", "f"])
def test_a_covered_operator_may_lose_its_host_or_its_backup(node: str) -> None:
    assert why_not_lost([QUERY], node) == ""


@pytest.mark.parametrize(
    "info, node, why",
    [
        (query(survival=None, state="placing"), "f", "q is placing"),
        (query(stale=True), "f", "not confirmed"),
        (
            query(survival=Survival(any_node=False, losses=(Loss(node="e", part="operator", name="q.o1", why="local"),))),
            "e",
            "local",
        ),
        (query(acceptors=("a", "e")), "e", "its record on 2 nodes"),
        (query(operators=(msgspec.structs.replace(OPERATOR, state="starting"),)), "f", "q.o1 is starting, and f its backup"),
    ],
)
def test_a_disk_stays_that_a_query_needs(info: QueryInfo, node: str, why: str) -> None:
    assert why in why_not_lost([QUERY, info], node)
    assert why_not_lost([QUERY], node) == ""


def test_no_submission_passes_a_closed_gate() -> None:
    gate, passed = Gate(), threading.Event()

    def submit() -> None:
        with gate.submitting():
            passed.set()

    with gate.closed():
        thread = threading.Thread(target=submit)
        thread.start()
        assert not passed.wait(0.2)
    thread.join(10)
    assert passed.is_set()


def test_the_gate_closes_once_no_submission_is_under_way() -> None:
    gate, closed = Gate(), threading.Event()

    def close() -> None:
        with gate.closed():
            closed.set()

    with gate.submitting(), gate.submitting():
        thread = threading.Thread(target=close)
        thread.start()
        assert not closed.wait(0.2)
    thread.join(10)
    assert closed.is_set()
