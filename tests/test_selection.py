"""Selection of tests: numbers, the summary of skipped ones, and no silent skip for a missing server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFTEST = Path(__file__).parent / "conftest.py"

TESTS = """
import pytest

def test_any(): pass

@pytest.mark.live
def test_live(): pass

@pytest.mark.needs_idle_machine
@pytest.mark.only_in_test_all("tests of a whale")
def test_whale(): pass

@pytest.mark.needs_idle_machine
def test_lone(): pass

@pytest.mark.parametrize("number", [pytest.param(n, marks=pytest.mark.only_in_test_all("of many")) for n in range(3)])
def test_many(number): pass

@pytest.mark.one_part_per_commit("of a family", parts=2)
@pytest.mark.parametrize("number", range(8))
def test_family(number): pass

@pytest.mark.one_part_per_commit("of twins", parts=2)
def test_twin_abel(): pass

@pytest.mark.one_part_per_commit("of twins", parts=2)
def test_twin_beth(): pass

def test_seed(schedule_seed): print(f"seed={schedule_seed}")
"""
STATE = """
from tests.running import selection, stored

selection.number_of_commit = lambda: int(os.environ["COMMIT"])
run = stored.StoredRun(files={"some/test_slow.py": selection.CHECK_S, "some/test_some.py": selection.CHECK_S - 0.1})
selection.stored.read = lambda: run
"""
SERVER = """
from tests.connectors.servers import program

def test_server(): program("no-such-server")
"""


def pytest_in(folder: Path, *arguments: str, ci: str = "", commit: str = "0") -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
    ]
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin,pytest_asyncio,pytest_timeout"}
    environment = {**os.environ, **plugins, "CI": ci, "PYTHONPATH": str(ROOT), "COMMIT": commit, "PYTEST_ADDOPTS": ""}
    return subprocess.run(
        [*command, *arguments, str(folder / "some")], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "some").mkdir()
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text() + STATE)
    (tmp_path / "some" / "test_some.py").write_text(TESTS)
    (tmp_path / "some" / "test_slow.py").write_text("def test_slow(): pass")
    return tmp_path


SELECTIONS = {
    "check": (
        7,
        "left out: 1 in need of an idle machine, 5 left to other commits, 1 live, 4 only in make test-all, "
        "1 slow in the stored run. make test runs them, -v lists them",
    ),
    "most": (
        9,
        "left out: 1 in need of an idle machine, 5 left to other commits, 4 only in make test-all. "
        "make test-all runs them, -v lists them",
    ),
    "all": (19, ""),
}
KINDS = [
    "left out: 1 measurements, in need of an idle machine",
    "left out: 4 of a family, left to other commits",
    "left out: 1 of twins, left to other commits",
    "left out: 3 of many, only in make test-all",
    "left out: 1 tests of a whale, only in make test-all",
]
ONLY_IN_TEST_ALL = pytest.mark.only_in_test_all("selections in as many processes as another one")


@pytest.mark.parametrize(
    "tests, workers",
    [
        ("check", ()),
        ("all", ()),
        ("most", ("-n", "2")),
        pytest.param("most", (), marks=ONLY_IN_TEST_ALL),
        pytest.param("check", ("-n", "2"), marks=ONLY_IN_TEST_ALL),
        pytest.param("all", ("-n", "2"), marks=ONLY_IN_TEST_ALL),
    ],
)
def test_tests_left_out_are_counted(folder: Path, tests: str, workers: tuple[str, ...]) -> None:
    ran, line = SELECTIONS[tests]
    done = pytest_in(folder, "--tests", tests, *workers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ran} passed" in done.stdout
    assert [said for said in done.stdout.splitlines() if said.startswith("left out")] == ([line] if line else [])


def test_each_kind_of_tests_that_are_left_out_is_listed_on_request(folder: Path) -> None:
    said = pytest_in(folder, "--tests", "most", "--collect-only", "-v").stdout.splitlines()
    assert [line for line in said if line.startswith("left out")] == [
        *KINDS,
        SELECTIONS["most"][1].removesuffix(", -v lists them"),
    ]


def test_each_commit_draws_another_part_of_a_family_and_of_the_functions_with_the_same_words(folder: Path) -> None:
    def drawn(commit: str) -> set[str]:
        done = pytest_in(folder, "--tests", "most", "--collect-only", "-k", "family or twin", commit=commit)
        return set(re.findall(r"test_(?:family|twin)\S*", done.stdout))

    even, odd = drawn("6"), drawn("7")
    assert len(even) == len(odd) == 5
    assert not even & odd
    assert len(even | odd) == 10


def test_a_test_that_two_marks_draw_is_refused(folder: Path) -> None:
    """One of them would be hidden."""
    twice = "import pytest\n" + 2 * "@pytest.mark.one_part_per_commit('of {}', parts=2)\n" + "def test_drawn(): pass\n"
    (folder / "some" / "test_twice.py").write_text(twice.format("one", "other"))
    done = pytest_in(folder, "--tests", "most")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_drawn is drawn by more than one mark: of other, of one" in done.stdout + done.stderr


def test_tests_that_need_an_idle_machine_run_alone(folder: Path) -> None:
    done = pytest_in(folder, "-m", "needs_idle_machine")
    assert "2 passed" in done.stdout
    assert "left out" not in done.stdout


def test_the_time_of_each_package_is_printed(folder: Path) -> None:
    (folder / "some" / "other").mkdir()
    (folder / "some" / "other" / "test_other.py").write_text("import time\n\ndef test_other(): time.sleep(0.7)\n")
    assert "seconds: other 1, . 0" in pytest_in(folder, "-n", "2").stdout


def test_the_seed_is_the_same_in_each_run_unless_another_is_named(folder: Path) -> None:
    def seeds(*arguments: str) -> set[str]:
        done = pytest_in(folder, "-s", "-k", "seed", *arguments).stdout
        return {*re.findall(r"seed=(\d+)", done), *re.findall(r"--seed (\d+)", done)}

    assert seeds() == {"0"}
    assert seeds("--seed", "7") == {"7"}


@pytest.mark.parametrize("ci, outcome", [("", "skipped"), ("true", "failed")])
def test_a_missing_server_skips_a_test_and_fails_it_in_continuous_integration(folder: Path, ci: str, outcome: str) -> None:
    (folder / "some" / "test_some.py").write_text(SERVER)
    done = pytest_in(folder, ci=ci).stdout
    assert f"1 {outcome}" in done
    assert "no-such-server is not installed: make test-servers installs it" in done
