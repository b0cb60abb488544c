"""Capacity is promised once: to a reservation, until it lapses, is released, or stays."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

import pytest

from sbon_node.base.cgroups import core_limit, memory_limit
from sbon_node.engine.interface import EngineCapacity
from sbon_node.hosting.machine.capacity import LEAST_CORES, UNCOUNTED, Reservations, measured_cost
from sbon_protocol.api.measures import InputMeasures, OperatorMeasures
from sbon_protocol.api.nodes import BACKUP, FOLLOWER, CapacityUse
from sbon_protocol.api.operators import OPERATOR_MEMORY_MB, Needs
from sbon_protocol.errors import SbonError

CAPACITY = EngineCapacity(cores=2.0, memory_mb=1000.0, bandwidth_bytes_s=1e6, operators=3)


@pytest.mark.parametrize(
    "needs, reason",
    [
        (Needs(cores=2.0, memory_mb=1000.0, bandwidth_bytes_s=1e6), ""),
        (Needs(cores=2.1), "2.00 cores free, 2.10 needed"),
        (Needs(memory_mb=1001), "1000 MB free, 1001 needed"),
        (Needs(bandwidth_bytes_s=1e6 + 1), "1000000 B/s free, 1000001 needed"),
    ],
)
def test_operators_beyond_capacity_are_refused_with_a_reason(needs: Needs, reason: str) -> None:
    assert Reservations(CAPACITY).refusal(needs, now=0.0) == reason


def test_a_reservation_holds_room_until_it_lapses() -> None:
    held = Reservations(CAPACITY)
    held.reserve("a", Needs(cores=1.5), now=0.0, deadline=10.0)
    with pytest.raises(SbonError) as refusal:
        held.reserve("b", Needs(cores=1.0), now=9.0, deadline=19.0)
    assert refusal.value.code == "no-capacity"
    held.reserve("b", Needs(cores=1.0), now=10.0, deadline=20.0)


def test_a_running_operator_keeps_its_capacity_until_released() -> None:
    held = Reservations(CAPACITY)
    for operator in ("a", "b", "c"):
        held.reserve(operator, Needs(), now=0.0, deadline=1.0)
        held.confirm(operator, Needs(), now=0.5)
    assert held.operators() == ("a", "b", "c")
    assert held.refusal(Needs(), now=100.0) == "3 of 3 places are taken (held by 3 operators)"
    held.release("b")
    assert held.refusal(Needs(), now=100.0) == ""


def test_a_repeated_reservation_is_counted_once_and_needs_no_room_of_its_own() -> None:
    held = Reservations(CAPACITY)
    needs = Needs(cores=1.5, memory_mb=600.0)
    for operator in ("a", "b"):
        held.reserve(operator, Needs(cores=0.0, memory_mb=0.0), now=0.0, deadline=5.0)
    for now in (0.0, 1.0, 2.0):
        held.reserve("c", needs, now=now, deadline=now + 10.0)
        free = held.free(now)
        assert (free.cores, free.memory_mb, held.report(now).taken) == (0.5, 400.0, 3)
    held.confirm("c", needs, now=3.0)
    assert held.report(6.0).taken == 1
    held.release("c")
    assert held.free(6.0) == Needs(cores=2.0, memory_mb=1000.0, bandwidth_bytes_s=1e6)


TEN = EngineCapacity(cores=100.0, memory_mb=1e6, bandwidth_bytes_s=1e9, operators=10)


def taken(held: Reservations, holder: str, count: int, now: float) -> int:
    """Return how many of ``count`` reservations the holder gets, under ids and names of its choice."""
    got = 0
    for number in range(count):
        with suppress(SbonError):
            held.reserve(f"{holder}.{now}.{number}", Needs(), now, now + 300.0, owner=f"{holder}{number}", holder=holder)
            got += 1
    return got


def test_one_holder_cannot_keep_all_places_from_others() -> None:
    held = Reservations(TEN, share=0.5, grace_s=15.0)
    assert taken(held, "mallory", 12, now=0.0) == 10
    assert taken(held, "alice", 1, now=14.0) == 0, "it may be about to start a query of ten operators"
    assert held.refusal(Needs(), 15.0, "alice") == ""
    assert held.refusal(Needs(), 15.0, "mallory") != ""
    assert taken(held, "alice", 9, now=15.0) == 5
    assert taken(held, "mallory", 9, now=16.0) == 0
    assert len(held.promised(16.0)) == 10


def test_a_holder_that_asks_again_and_again_gains_nothing() -> None:
    held = Reservations(TEN, share=0.5, grace_s=15.0)
    for second in range(40):
        taken(held, "mallory", 10, now=float(second))
    assert taken(held, "alice", 5, now=40.0) == 5


def test_capacity_of_running_operators_is_never_taken_away() -> None:
    held = Reservations(TEN, share=0.5, grace_s=15.0)
    for number in range(10):
        held.reserve(f"{number}", Needs(), 0.0, 300.0, owner="bob")
        held.confirm(f"{number}", Needs(), 1.0, owner="bob")
    assert taken(held, "alice", 1, now=100.0) == 0
    assert len(held.operators()) == 10


def test_no_holder_gives_up_more_than_is_needed() -> None:
    held = Reservations(TEN, share=0.5, grace_s=15.0)
    assert taken(held, "bob", 10, now=0.0) == 10
    assert taken(held, "alice", 1, now=20.0) == 1
    assert len([one for one in held.promised(20.0) if one.startswith("bob")]) == 9


def test_what_a_query_holds_is_free_for_itself() -> None:
    held = Reservations(CAPACITY)
    for operator in ("q.a", "q.b", "other.a"):
        held.reserve(operator, Needs(cores=0.6, memory_mb=300.0), now=0.0, deadline=10.0)
    assert held.refusal(Needs(cores=0.3, memory_mb=0.0), now=1.0)
    assert held.refusal(Needs(cores=1.4, memory_mb=700.0), now=1.0, beside="q") == ""
    assert held.free(1.0, beside="q").memory_mb == 700.0
    assert held.refusal(Needs(cores=0.9, memory_mb=0.0), now=1.0, beside="oth") == held.refusal(
        Needs(cores=0.9, memory_mb=0.0), now=1.0
    )


NEEDS = Needs()


def admitted(held: Reservations, operator: str, use: CapacityUse, needs: Needs = NEEDS) -> None:
    held.reserve(operator, needs, now=0.0, deadline=10.0, use=use)
    held.confirm(operator, needs, now=0.0)


def test_a_backup_takes_no_place_and_a_follower_one() -> None:
    held = Reservations(CAPACITY)
    for number in range(5):
        admitted(held, f"q{number}.b", BACKUP, Needs(cores=1.0, memory_mb=400.0))
    admitted(held, "p.f", FOLLOWER)
    assert held.refusal(Needs(cores=1.5, memory_mb=900.0), now=1.0) == ""
    for operator in ("q.a", "q.b"):
        admitted(held, operator, "operator")
    assert held.refusal(Needs(), now=1.0) == "3 of 3 places are taken (held by 1 follower, 2 operators)"
    assert held.refusal(Needs(cores=9.0), now=1.0, use=BACKUP) == ""


def test_all_that_a_refusal_counts_is_in_the_report() -> None:
    held = Reservations(CAPACITY)
    admitted(held, "q.a", "operator")
    admitted(held, "p.b", BACKUP)
    held.reserve("r.c", Needs(cores=1.8), now=0.0, deadline=10.0)
    assert held.refusal(Needs(), now=1.0) == "0.09 cores free, 0.10 needed (held by 1 backup, 1 operator, 1 reservation)"
    report = held.report(now=1.0)
    assert [(one.operator, one.use) for one in report.held] == [("p.b", "backup"), ("q.a", "operator"), ("r.c", "reserved")]
    assert report.taken == 2
    assert report.cores - sum(one.cores for one in report.held) == pytest.approx(held.free(now=1.0).cores)
    assert [one.operator for one in held.report(now=10.0).held] == ["p.b", "q.a"]


def test_a_backup_goes_on_though_no_place_is_free() -> None:
    held = Reservations(CAPACITY)
    admitted(held, "p.b", BACKUP)
    for operator in ("q.a", "q.b", "q.c"):
        admitted(held, operator, "operator")
    held.keep("p.b", Needs())
    assert (held.report(now=1.0).taken, held.report(now=1.0).operators) == (4, 3)
    assert held.refusal(Needs(), now=1.0) == "4 of 3 places are taken (held by 4 operators)"


def test_an_operator_of_few_rows_holds_what_it_is_measured_to_take() -> None:
    needs = Needs(cores=0.1, memory_mb=OPERATOR_MEMORY_MB + 256.0)
    observed_s = 120.0 / math.log(2)  # What the decayed time tends to.

    def after(seconds: float, rows_s: float, row_ms: float | None, state_bytes: int | None = 0) -> Needs:
        rates = (InputMeasures(stream="s", rows_s=rows_s),)
        measures = OperatorMeasures(seconds=seconds, inputs=rates, cpu_row_ms=row_ms, state_bytes=state_bytes)
        return measured_cost(needs, measures, speed=2.0, half_life_s=120.0)

    assert after(0.0, 1.0, 5.0) == needs
    assert after(observed_s, 0.0, None).amounts == pytest.approx((LEAST_CORES, OPERATOR_MEMORY_MB, 0.0))
    assert after(observed_s, 100.0, 5.0).cores == pytest.approx(UNCOUNTED * 100.0 * 0.005 / 2.0), "more than estimated"
    assert after(observed_s / 2, 0.0, None).cores == pytest.approx((needs.cores + LEAST_CORES) / 2)
    assert after(observed_s, 1.0, None, None) == needs, "neither processor time nor state is known"

    many = Reservations(TEN, measured=lambda operator, needs: after(observed_s, 0.0, None))
    for number in range(3):
        admitted(many, f"q.{number}", "operator", needs)
    assert many.free(now=1.0).cores == pytest.approx(TEN.cores - 3 * LEAST_CORES)


@pytest.mark.parametrize(
    "own, files, cores, memory_mb",
    [
        ("0::/pod/it", {"pod/it/memory.max": "max", "pod/memory.max": "3145728", "pod/it/cpu.max": "150000 100000"}, 1.5, 3),
        ("0::/../elsewhere", {"memory.max": "1048576", "cpu.max": "max 100000"}, math.inf, 1),
        (
            "5:memory:/docker/it\n1:cpu,cpuacct:/docker/it",
            {
                "memory/docker/it/memory.limit_in_bytes": "2097152",
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "cpu,cpuacct/docker/it/cpu.cfs_quota_us": "50000",
                "cpu,cpuacct/docker/it/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            0.5,
            2,
        ),
        ("0::/", {}, math.inf, math.inf),
        ("", {}, math.inf, math.inf),
    ],
)
def test_a_container_has_what_its_groups_allow(
    tmp_path: Path, own: str, files: dict[str, str], cores: float, memory_mb: float
) -> None:
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (tmp_path / "own").write_text(own + "\n")
    assert core_limit(tmp_path / "root", tmp_path / "own") == cores
    assert memory_limit(tmp_path / "root", tmp_path / "own") / 2**20 == memory_mb
    assert core_limit(tmp_path / "root", tmp_path / "nothing") == math.inf
