"""``sbon simulate``: one seed, one output; what is wrong with a scenario is said, and what went wrong in one can be run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import run

SCENARIOS = Path(__file__).parents[1] / "scenarios"


def simulate(*arguments: str | Path, hash_seed: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sbon_cli.main", "simulate", *(str(argument) for argument in arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


STRUCK = (
    (SCENARIOS / "random_faults.toml").read_text()
    + """
[[faults]]
when = { type = "WHEN", seconds = 1.0 }
action = "kill"
node = "NODE"
"""
)


def with_line(line: str) -> str:
    """The scenario with this line first, in place of what it says of the same."""
    key = line.partition(" ")[0]
    kept = [other for other in (SCENARIOS / "random_faults.toml").read_text().splitlines() if not other.startswith(f"{key} =")]
    return "\n".join([line, *kept])


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_the_output_depends_on_the_seed_alone() -> None:
    runs = [simulate(SCENARIOS / "random_faults.toml", "--seeds", "1..2", "--json", hash_seed=hash_seed) for hash_seed in (1, 2)]
    assert runs[0].returncode == 0, runs[0].stderr
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout.count('"ending":"finished"') == 2
    assert "events/s" in runs[0].stderr


@pytest.mark.one_part_per_commit("commands as processes", parts=6)
def test_a_failure_comes_with_its_trace_and_the_command_that_runs_it_again(tmp_path: Path) -> None:
    scenario = tmp_path / "wrong.toml"
    text = (SCENARIOS / "filter_at_the_sources.toml").read_text()
    scenario.write_text(text.replace('consumer = "delhi"', 'answer = "SELECT id, v FROM numbers"\nconsumer = "delhi"', 1))
    result = simulate(scenario, "--seed", "7", "--nodes", "5")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == f"replay: sbon simulate {scenario} --seed 7 --nodes 5"
    assert len(result.stderr.splitlines()) > 50


@pytest.mark.parametrize(
    "text, arguments, message",
    [
        ("name = ", [], "wrong.toml: Invalid value"),
        ('name = "x"', [], "wrong.toml: nodes is missing"),
        (STRUCK.replace("WHEN", "time"), [], "wrong.toml: faults[0].node: there is no node 'NODE'"),
        (STRUCK.replace("NODE", "node-0").replace("WHEN", "time"), [], "hint: nodes has: "),
        (STRUCK.replace("WHEN", "stp"), [], "wrong.toml: faults[0].when.type: 'stp' is not known: it is one of step, call, time"),
        (with_line("latency_ms = nan"), [], "wrong.toml: latency_ms: must be at least 0"),
        (with_line("random_faults = -1"), [], "wrong.toml: random_faults: must be at least 0"),
        (with_line("max_time_s = inf"), [], "wrong.toml: max_time_s: must be at most 10000000"),
        (with_line('nodes = ["a", "a"]'), [], "wrong.toml: nodes: two are called 'a'"),
        (STRUCK.replace("WHEN", "time") + "dwon_s = 2.0\n", [], "wrong.toml: faults[0]: there is no field dwon_s"),
        (None, ["--nodes", "2"], "wrong.toml: names 5 nodes"),
        (None, ["--seeds", "2..1"], "neither a number nor A..B"),
    ],
)
def test_errors_name_the_field(tmp_path: Path, text: str | None, arguments: list[str], message: str) -> None:
    scenario = tmp_path / "wrong.toml"
    scenario.write_text(text if text is not None else (SCENARIOS / "random_faults.toml").read_text())
    result = run("", "simulate", str(scenario), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
