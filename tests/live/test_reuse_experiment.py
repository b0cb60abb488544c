"""SBON's four queries over two producers on Spark: reuse saves, and every row is DuckDB's."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.commands.reuse_live import run_paper
from sbon_lab.experiments.reuse.figures import MODES
from sbon_lab.experiments.reuse.paper import PAPER_SAVED_PCT

pytestmark = [pytest.mark.live, pytest.mark.only_in_test_all("the papers' queries on live nodes")]


def test_the_papers_queries_share_and_have_their_rows(tmp_path: Path) -> None:
    never, *sharing = run_paper(90.0, 1, tmp_path, lambda text: None)
    assert [row["reuse"] for row in (never, *sharing)] == list(MODES)
    assert (never["queries"], never["shared"], never["wrong"], never["rows"]) == (4, 0, 0, 3 * 45 + 23)
    for row in sharing:
        assert (row["queries"], row["wrong"], row["rows"]) == (4, 0, never["rows"])
        assert row["sharing"] >= 2
        assert row["operators"] < never["operators"]
    # On a slow machine queries that begin late get their rows in fewer frames, and carry less without reuse.
    assert sharing[-1]["saved_pct"] >= PAPER_SAVED_PCT / 2
