"""Faults of all kinds under queries on six real nodes, for half a minute or two minutes; the seed is the commit's."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_cli.commands.experiments.bench_chaos import BAD
from sbon_cli.commands.experiments.chaos import run
from tests.commits import number_of_commit

pytestmark = pytest.mark.live
TWO_MINUTES = pytest.param(120.0, marks=pytest.mark.thorough("two minutes of live chaos"))


@pytest.mark.parametrize("seconds", [30.0, TWO_MINUTES])
def test_no_row_is_wrong_lost_or_doubled_and_no_query_stuck(tmp_path: Path, seconds: float) -> None:
    """On a failure the timeline is printed; ``sbon bench chaos --minutes MINUTES --seed SEED`` repeats it."""
    result = run.run(tmp_path, seconds, number_of_commit() or 0, print)
    (row,) = result["rows"]
    assert {name: row[name] for name in BAD} == dict.fromkeys(BAD, 0), result["queries"]
    assert row["finished"] > 0
