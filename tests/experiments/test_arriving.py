"""Rows of a benchmark are printed as they come, and an interrupted run shows those that it has."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from sbon_lab.commands.arriving import Row, arriving
from tests.cli.commands import hearing_ctrl_c


@pytest.mark.parametrize("signum, code", [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)])
def test_an_interrupted_run_keeps_its_rows(signum: signal.Signals, code: int) -> None:
    command = [sys.executable, "-m", "sbon_cli.main", "bench", "readers", "--frames", "400", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hearing_ctrl_c
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("readers=1 ")
        process.send_signal(signum)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (code, False)
    result = json.loads(out)
    assert (result["name"], result["rows"][0]["readers"]) == ("readers", 1)
    assert len(result["rows"]) < 4


def test_a_later_row_of_the_same_case_replaces_the_earlier(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[list[Row]] = []
    with suppress(KeyboardInterrupt), arriving("begins", shown.append, key=("kind",)) as so_far:
        so_far.found({"kind": "a", "pause_s": 1.5, "bare_s": None})
        so_far.found({"kind": "b", "pause_s": 2.5, "bare_s": None})
        so_far.found({"kind": "a", "pause_s": 1.5, "bare_s": 4.0})
        raise KeyboardInterrupt
    assert shown == [[{"kind": "b", "pause_s": 2.5, "bare_s": None}, {"kind": "a", "pause_s": 1.5, "bare_s": 4.0}]]
    assert capsys.readouterr().err.splitlines() == ["kind=a pause_s=1.5", "kind=b pause_s=2.5", "kind=a pause_s=1.5 bare_s=4.0"]
