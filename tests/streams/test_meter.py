"""Decayed measures of an operator, against closed forms and known distributions."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from sbon_node.streams.measures.meter import OperatorMeter
from sbon_protocol.api.measures import MeasureSums, OperatorMeasures

HALF_LIFE_S = 10.0


def meter(*streams: str) -> OperatorMeter:
    begun = OperatorMeter(streams or ("in",), half_life_s=HALF_LIFE_S)
    begun.begin(0.0)
    return begun


def batch(one: OperatorMeter, number: int, at: float, rows: int, *, took_s: float = 0.0, out: int = 0, position: int = 0) -> None:
    one.fetched(at - took_s, position, rows, 10 * rows)
    one.wrote(at, number, out, 5 * out)


def read(one: OperatorMeter, now: float, inputs: int = 1) -> OperatorMeasures:
    return one.measures(now, [(0, 0)] * inputs)


@pytest.mark.parametrize("every_s", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("until_s", [3.0, 300.0])
def test_a_steady_flow_has_its_rate_from_the_start(every_s: float, until_s: float) -> None:
    one = meter()
    steps = int(until_s / every_s)
    for step in range(1, steps + 1):
        batch(one, step, step * every_s, 30, out=3)
    found = read(one, steps * every_s)
    # A batch counts when it ends, so it weighs as much as its end: at most half an interval's decay too much.
    rel = 2 * every_s / HALF_LIFE_S + 1e-9
    assert found.rows_in_s == pytest.approx(30 / every_s, rel=rel)
    assert found.inputs[0].bytes_s == pytest.approx(300 / every_s, rel=rel)
    assert found.rows_out_s == pytest.approx(3 / every_s, rel=rel)
    assert found.bytes_out_s == pytest.approx(15 / every_s, rel=rel)
    assert found.selectivity == pytest.approx(0.1)


def test_the_sums_of_a_regular_flow_are_the_geometric_series() -> None:
    one = meter()
    for second in range(1, 51):
        batch(one, second, float(second), 7)
    q = 0.5 ** (1 / HALF_LIFE_S)
    sums = one.sums(50.0)
    assert sums.inputs[0].rows == pytest.approx(7 * (1 - q**50) / (1 - q))
    assert sums.seconds == pytest.approx(HALF_LIFE_S / math.log(2) * (1 - q**50))
    assert sums.batches == pytest.approx((1 - q**50) / (1 - q))


def test_the_sums_do_not_depend_on_when_they_are_read() -> None:
    often, once = meter(), meter()
    for second in range(1, 31):
        batch(often, second, float(second), 11, took_s=0.2, out=2)
        batch(once, second, float(second), 11, took_s=0.2, out=2)
        for tenth in range(10):
            often.sums(second + tenth / 10)
    for name in ("seconds", "rows_out", "work_s", "work_s2_row", "batches"):
        assert getattr(often.sums(40.0), name) == pytest.approx(getattr(once.sums(40.0), name)), name


def test_a_flow_that_ends_decays_with_the_half_life_and_keeps_its_selectivity() -> None:
    one = meter()
    for second in range(1, 301):
        batch(one, second, float(second), 100, out=50)
    before = read(one, 300.0)
    after = read(one, 300.0 + HALF_LIFE_S)
    assert after.rows_in_s == pytest.approx(before.rows_in_s / 2, rel=1e-6)  # type: ignore[operator]
    assert after.selectivity == pytest.approx(0.5)


def test_a_change_is_followed_by_half_lives() -> None:
    one, rate = meter(), 100
    for second in range(1, 201):
        batch(one, second, float(second), rate)
    for second in range(201, 221):  # two half-lives of the fourfold rate
        batch(one, second, float(second), 4 * rate)
    assert read(one, 220.0).rows_in_s == pytest.approx(rate * (1 * 0.25 + 4 * 0.75), rel=0.05)


def test_each_input_has_its_own_rate() -> None:
    one = meter("a", "b")
    for second in range(1, 101):
        one.fetched(second - 0.1, 0, 10, 1000)
        one.fetched(second - 0.1, 1, 40, 400)
        one.wrote(float(second), second, 1, 1)
    a, b = one.measures(100.0, [(3, 30), (0, 0)]).inputs
    assert (a.stream, a.waiting_frames, a.waiting_bytes, b.stream) == ("a", 3, 30, "b")
    assert a.rows_s == pytest.approx(10, rel=0.05)
    assert b.rows_s == pytest.approx(40, rel=0.05)
    assert a.bytes_s == pytest.approx(1000, rel=0.05)
    assert b.bytes_s == pytest.approx(400, rel=0.05)


@pytest.mark.parametrize("scv", [0.0, 0.25, 1.0, 4.0])
def test_the_work_of_a_row_has_its_mean_and_variance(scv: float) -> None:
    """Batches of different sizes, whose rows take independent times: gamma distributed, with this variation."""
    rng, one = random.Random(7), OperatorMeter(("in",), half_life_s=1e5)
    one.begin(0.0)
    mean_s, at = 0.002, 0.0
    for number in range(4000):
        rows = rng.randint(1, 60)
        shape = math.inf if scv == 0.0 else 1.0 / scv
        took_s = rows * mean_s if scv == 0.0 else rng.gammavariate(rows * shape, mean_s / shape)
        at += 1.0
        batch(one, number, at, rows, took_s=took_s)
    found = read(one, at)
    assert found.row_ms == pytest.approx(2.0, rel=0.03)
    assert found.row_scv == pytest.approx(scv, rel=0.1, abs=1e-6)
    assert found.busy == pytest.approx(30.5 * mean_s, rel=0.05)


def test_time_between_pause_and_begin_does_not_count() -> None:
    one = meter()
    for second in range(1, 101):
        batch(one, second, float(second), 10)
    before = read(one, 100.0)
    one.fetched(100.5, 0, 999, 9990)
    one.pause()
    one.begin(1000.0)
    batch(one, 101, 1001.0, 10)
    after = read(one, 1001.0)
    assert after.rows_in_s == pytest.approx(before.rows_in_s, rel=0.02)  # type: ignore[arg-type]


def test_a_batch_that_is_written_again_counts_once() -> None:
    one = meter()
    batch(one, 1, 1.0, 10, out=5)
    batch(one, 1, 2.0, 10, out=5)
    batch(one, 2, 3.0, 10, out=5)
    assert one.sums(3.0).batches == pytest.approx(1 + 0.5 ** (2 / HALF_LIFE_S))


def test_output_without_input_counts_as_output_alone() -> None:
    """A watermark alone may release rows."""
    one = meter()
    batch(one, 1, 1.0, 10, took_s=0.5)
    one.wrote(1.0, 2, 4, 20)
    found = read(one, 1.0)
    assert (found.selectivity, found.batch_ms) == (pytest.approx(0.4), pytest.approx(500.0))


def test_nothing_is_claimed_before_the_first_batch() -> None:
    found = read(meter(), 0.0)
    assert (found.rows_in_s, found.rows_out_s, found.selectivity, found.batch_ms, found.row_ms, found.row_scv) == (None,) * 6


def test_processor_time_of_a_row_is_that_at_speed_1_and_leaves_out_batches_without_it() -> None:
    one = OperatorMeter(("in",), half_life_s=HALF_LIFE_S, speed=2.0)
    one.begin(0.0)
    for number, (rows, cpu_s) in enumerate([(10, 0.1), (0, 7.0), (10, 0.0), (10, 0.3)]):
        one.spent(cpu_s / 2)
        one.spent(cpu_s / 2)
        batch(one, number, 0.0, rows)
    found = read(one, 0.0)
    assert found.cpu_row_ms == pytest.approx(2.0 * 1e3 * 0.4 / 20)
    # Two batches of 10 rows, with 0.2 and 0.6 s at speed 1: (y - 0.4)^2 / 10 on average, over the square of 0.04.
    assert found.cpu_row_scv == pytest.approx(0.04 / 10 / 0.04**2)
    assert read(meter(), 0.0).cpu_row_ms is None


def test_sums_go_on_elsewhere() -> None:
    one = meter()
    for second in range(1, 101):
        batch(one, second, float(second), 10, took_s=0.1, out=2)
    carried = msgspec.msgpack.decode(msgspec.msgpack.encode(one.sums(100.0)), type=MeasureSums)
    other = OperatorMeter(("in",), half_life_s=HALF_LIFE_S, sums=carried)
    other.begin(5_000.0)
    assert read(other, 5_000.0) == read(one, 100.0)


def test_sums_of_an_operator_with_other_inputs_are_ignored() -> None:
    one = meter("a", "b")
    one.restore(MeasureSums(seconds=5.0, rows_out=3.0))
    assert one.sums(0.0).rows_out == 0.0


@pytest.mark.parametrize("bad", [{"seconds": -1.0}, {"work_s": 1e30}, {"rows_out": float("nan")}, {"inputs": [{"rows": -1.0}]}])
def test_impossible_sums_of_a_peer_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(bad, MeasureSums)
