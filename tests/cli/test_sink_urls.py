"""Values of --to: a path, or a URL of one sink or another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from sbon_cli.commands.queries.sink_urls import sink_of


@pytest.mark.parametrize(
    "to, kind, options",
    [
        ("a/b.csv", "file", {"path": str(Path("a/b.csv").absolute())}),
        ("./odd:name.csv", "file", {"path": str(Path("odd:name.csv").absolute())}),
        ("C.csv", "file", {"path": str(Path("C.csv").absolute())}),
        ("file:///x/a%20b.csv", "file", {"path": "/x/a b.csv"}),
        ("blackhole:", "blackhole", {}),
        ("stream:late", "stream", {"stream": "late"}),
        ("postgres://me@h:1/db/t", "postgres", {"url": "postgres://me@h:1/db", "table": "t"}),
        ("postgresql://h/db/s.t?sslmode=require", "postgres", {"url": "postgresql://h/db?sslmode=require", "table": "s.t"}),
        ("http://h/x?y=1", "http", {"url": "http://h/x?y=1"}),
        ("https://h", "http", {"url": "https://h"}),
        ("tally:/x/y", "tally", {"url": "tally:/x/y"}),
    ],
)
def test_where_it_leads(to: str, kind: str, options: dict[str, Any]) -> None:
    found = sink_of(to, None, ("part_rows=7", 'headers={"a": "b"}'))
    assert (found.kind, found.options) == (kind, {**options, "part_rows": 7, "headers": {"a": "b"}})


@pytest.mark.parametrize("to", ["postgres://h", "postgres://h/db", "postgres://h/db/s/t", "postgres://[h/db/t"])
def test_databases_need_a_table(to: str) -> None:
    with pytest.raises(click.UsageError, match="--to: "):
        sink_of(to, None, ())
