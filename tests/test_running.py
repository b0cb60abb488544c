"""The stored run orders the tests, a run that takes much longer fails, and a failed test is told at once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.running import scheduling, speed, stored
from tests.running.failures import MOST_CHARACTERS, Failures
from tests.running.speed import Speed
from tests.running.stored import StoredRun

STORED = StoredRun(
    "2026-11-28",
    "abc",
    0.05,
    files={"tests/live/test_a.py": 30.0, "tests/net/test_b.py": 40.0, "tests/live/test_c.py": 20.0, "tests/space/test_d.py": 1.0},
    tests={"tests/net/test_b.py::test_b": 9.0},
)


def test_a_run_is_stored_with_its_folders_files_and_slow_tests(tmp_path: Path) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)

    def took(name: str, call_s: float, starts: dict[str, int]) -> dict[str, Any]:
        costs = {"set_up_s": 0.25, "tear_down_s": 0.0, "cpu_s": 0.1, "waited_s": 0.5, "slept_s": 0.2}
        return {"name": name, "call_s": call_s, **costs, "starts": Counter(starts)}

    tests = [
        took("tests/net/test_b.py::test_b", 0.5, {}),
        took("tests/net/test_b.py::test_c", 2.0, {"jvm in engine": 1}),
        took("tests/test_d.py::test_d", 4.0, {"jvm in engine": 2}),
    ]
    path = stored.write({"minutes": 0.1, "calibration_s": 0.05}, tests, tmp_path)
    run = stored.read(path)
    assert run.calibration_s == 0.05
    assert run.files == {"tests/net/test_b.py": 3.0, "tests/test_d.py": 4.2}
    assert run.tests == {"tests/net/test_b.py::test_c": 2.2, "tests/test_d.py::test_d": 4.2}
    assert run.folders() == {"net": 3.0, ".": 4.2}
    assert "3 jvm in engine" in path.read_text()


@pytest.mark.parametrize("shuffle", [None, 1, 2])
def test_groups_stay_together_and_those_that_take_longest_begin(shuffle: int | None) -> None:
    names = [
        "tests/space/test_d.py::test_d",
        "tests/live/test_a.py::test_a",
        "tests/net/test_b.py::test_b",
        "tests/live/test_c.py::test_c",
        "tests/net/test_b.py::test_e",
        "tests/net/test_new.py::test_new",
    ]
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in names]
    scheduling.order(items, STORED, shuffle)
    groups = list(dict.fromkeys(scheduling.group_of(item.nodeid) for item in items))
    assert sorted(item.nodeid for item in items) == sorted(names)
    assert [scheduling.group_of(item.nodeid) for item in items] == [
        group for group in groups for name in names if scheduling.group_of(name) == group
    ]
    if shuffle is None:
        assert groups == ["tests/live", "tests/net/test_b.py", "tests/space/test_d.py", "tests/net/test_new.py"]


def ran(
    monkeypatch: pytest.MonkeyPatch, minutes: float, calibration_s: float, *, bounded: bool = True, **took: float
) -> tuple[Any, Speed]:
    """Return the session and the speed of a run."""
    monkeypatch.setattr(speed, "calibrate", lambda: calibration_s)
    made = Speed(STORED, bounded=bounded)
    for folder, seconds in took.items():
        made.pytest_runtest_logreport(SimpleNamespace(nodeid=f"tests/{folder}/test_x.py::test_x", duration=seconds))  # type: ignore[arg-type]
    made._began -= 60 * minutes
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    made.pytest_sessionfinish(session)
    return session, made


@pytest.mark.parametrize(
    "minutes, calibration_s, fails",
    [
        (39, 0.05, False),
        (41, 0.05, True),
        (60, 0.1, False),
        (41, 0.03, True),
        (30, 0.03, False),
        (79, 0.3, False),
        (81, 0.3, True),
    ],
)
def test_a_run_of_more_than_forty_minutes_of_the_stored_machine_fails(
    monkeypatch: pytest.MonkeyPatch, minutes: float, calibration_s: float, fails: bool
) -> None:
    session, made = ran(monkeypatch, minutes, calibration_s, live=50.0, net=20.0, space=1.0)
    unbounded = ran(monkeypatch, minutes, calibration_s, bounded=False, live=50.0, net=20.0, space=1.0)
    assert unbounded[0].exitstatus == pytest.ExitCode.OK
    assert not any(line.endswith("failed") for line in unbounded[1].lines())
    assert session.exitstatus == (pytest.ExitCode.TESTS_FAILED if fails else pytest.ExitCode.OK)
    assert any(line.endswith("failed") for line in made.lines()) == fails


def test_seconds_stand_beside_the_stored_ones_and_a_new_minute_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ran(monkeypatch, 1.0, 0.05, live=150.0, net=20.0, space=1.0)[1].lines()
    assert lines[0] == "seconds: live 150 (50), net 20 (40), space 1 (1)"
    assert "2026-11-28, commit abc" in lines[1]
    assert lines[2].split() == ["150.0", "tests/live/test_x.py::test_x"]
    assert lines[-2] == "in all 171 s of workers, +80 s at the stored machine's speed"
    assert lines[-1].startswith("more than 60 s are new")
    assert len(ran(monkeypatch, 1.0, 0.1, live=150.0, net=20.0, space=1.0)[1].lines()) == len(lines) - 1


def test_a_failed_test_is_told_at_once_in_one_line() -> None:
    written: list[str] = []
    reporter = SimpleNamespace(write_line=written.append)
    failures = Failures(SimpleNamespace(pluginmanager=SimpleNamespace(get_plugin=lambda _: reporter)))  # type: ignore[arg-type]
    crash = SimpleNamespace(message="AssertionError: " + "x" * 1000 + "\nmore")
    for failed, when, reason in (
        (False, "call", None),
        (True, "call", SimpleNamespace(reprcrash=crash)),
        (True, "setup", "no server\nat all"),
    ):
        report = SimpleNamespace(nodeid="tests/test_x.py::test_x", failed=failed, when=when, longrepr=reason)
        failures.pytest_runtest_logreport(report)  # type: ignore[arg-type]
    first, second = (line.lstrip("\n") for line in written)
    assert first.startswith("tests/test_x.py::test_x failed in its call: AssertionError: xxx")
    assert len(first) < MOST_CHARACTERS + 60
    assert "more" not in first
    assert second == "tests/test_x.py::test_x failed in its setup: no server"
