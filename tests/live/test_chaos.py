"""Two minutes of faults of all kinds under queries on six real nodes; the seed is the commit's."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.chaos import run
from sbon_lab.commands.bench import BAD
from tests.commits import number_of_commit

pytestmark = [pytest.mark.live, pytest.mark.only_in_test_all("two minutes of live chaos")]
SECONDS = 120.0


def test_no_row_is_wrong_lost_or_doubled_and_no_query_stuck(tmp_path: Path) -> None:
    """On a failure the timeline is printed; ``sbon bench chaos --minutes 2 --seed SEED`` repeats it."""
    result = run.run(tmp_path, SECONDS, number_of_commit() or 0, print)
    (row,) = result["rows"]
    assert {name: row[name] for name in BAD} == dict.fromkeys(BAD, 0), result["queries"]
    assert row["finished"] > 0
