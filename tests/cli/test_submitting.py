"""``sbon submit``: its query, its sink, and its refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon_protocol.errors import SbonError
from tests.cli.commands import run


def test_a_refused_submission_lists_who_refused(api: str, node: Any) -> None:
    node.refuse_submit = SbonError(
        "no-capacity", "no node has capacity for o1", hint="add nodes", details=("a: cores", "b: memory")
    )
    result = run(api, "submit", "select 1")
    assert result.exit_code == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[-4:] == ["error: no node has capacity for o1", "  - a: cores", "  - b: memory", "  hint: add nodes"]


@pytest.mark.parametrize("arguments, error", [(("",), "sql: must not be empty"), (("--name", "a b/c", "select 1"), "name: has")])
def test_a_malformed_submission_refers_to_the_commands_help(api: str, arguments: tuple[str, ...], error: str) -> None:
    result = run(api, "submit", *arguments)
    assert result.exit_code == 1
    assert f"error: {error}" in result.stderr
    assert result.stderr.endswith("submit --help\n")
    assert "api.md" not in result.stderr


def test_sql_comes_from_a_file_or_standard_input(api: str, node: Any, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("select 2")
    assert run(api, "submit", "--no-follow", f"@{tmp_path}/q.sql").exit_code == 0
    assert run(api, "submit", "--no-follow", "-", stdin="select 3").exit_code == 0
    assert [s.sql for s in node.submitted] == ["select 2", "select 3"]
    assert run(api, "submit", f"@{tmp_path}/none.sql").exit_code == 2


def test_results_may_go_to_a_file_at_the_consumer(api: str, node: Any) -> None:
    result = run(
        api, "submit", "select 1", "--to", "/data/out.bin", "--format", "parquet", "--consumer", "b", "--strategy", "producer"
    )
    assert result.exit_code == 0
    sent = node.submitted[0]
    assert (sent.sink.kind, sent.sink.options) == ("file", {"path": "/data/out.bin", "format": "parquet"})
    assert (sent.consumer, sent.strategy) == ("b", "producer")
    assert result.stdout == "q1\n"
    assert "for its progress: sbon query show q1" in result.stderr


@pytest.mark.parametrize(
    "given, sent",
    [
        ((), None),
        (("--durability", "local"), "local"),
        (("--durability", "replicated"), "replicated"),
        (("--durability", "hot"), "hot"),
    ],
)
def test_the_durability_reaches_the_node(api: str, node: Any, given: tuple[str, ...], sent: str | None) -> None:
    assert run(api, "submit", "--no-follow", *given, "select 1").exit_code == 0
    node.refuse_submit = SbonError("no-capacity", "no node has capacity")  # sql would follow the rows
    assert run(api, "sql", *given, "-c", "select 2;").exit_code == 1
    assert [(s.sql, s.durability) for s in node.submitted] == [("select 1", sent), ("select 2", sent)]


def test_a_durability_that_does_not_exist_is_refused_before_a_request(api: str, node: Any) -> None:
    result = run(api, "submit", "--durability", "warm", "select 1")
    assert result.exit_code == 2
    assert "'warm' is not one of 'local', 'replicated', 'hot'" in " ".join(result.stderr.split())
    assert node.submitted == []
