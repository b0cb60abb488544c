"""Sources and sinks lie in the folders a node lets others use, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.registry import check_sink
from sbon_node.connectors.sources.registry import open_source
from sbon_node.model.schema import parse_schema
from sbon_protocol.api.catalogue import SourceDeclaration, StreamDeclaration
from sbon_protocol.errors import SbonError

STREAM = StreamDeclaration(name="s", schema=parse_schema("ts timestamp, n int"), event_time="ts")


def source(path: Path, roots: tuple[str, ...]) -> None:
    declared = SourceDeclaration(stream="s", name="a", node="n", connector="file", options={"path": str(path)})
    open_source(declared, STREAM, ConnectorSettings(data_roots=roots))


def sink(path: Path, roots: tuple[str, ...]) -> None:
    check_sink("file", {"path": str(path)}, ConnectorSettings(data_roots=roots))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("data", "data2", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "out").symlink_to(tmp_path / "other")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    return tmp_path


@pytest.mark.parametrize("ask", [source, sink])
@pytest.mark.parametrize(
    "path, roots, allowed",
    [
        ("data/x.csv", ["data"], True),
        ("data/x.csv", ["other", "data"], True),
        ("link/x.csv", ["data"], True),
        ("data/x.csv", ["link"], True),
        ("other/../data/x.csv", ["data"], True),
        ("data2/x.csv", ["data"], False),
        ("data/../other/x.csv", ["data"], False),
        ("data/out/x.csv", ["data"], False),
        ("data/x.csv", [], False),
    ],
)
def test_links_and_dots_lead_nowhere_else(folder: Path, ask: object, path: str, roots: list[str], allowed: bool) -> None:
    named = tuple(str(folder / root) for root in roots)
    if allowed:
        ask(folder / path, named)  # type: ignore[operator]
        return
    with pytest.raises(SbonError) as refused:
        ask(folder / path, named)  # type: ignore[operator]
    assert (refused.value.code, refused.value.where) == ("outside-roots", "options.path")
    assert "--data-roots" in refused.value.hint


@pytest.mark.parametrize("ask", [source, sink])
def test_the_root_is_anywhere(folder: Path, ask: object) -> None:
    with pytest.raises(SbonError, match="in no folder that this node lets others use"):
        ask(folder / "other" / "x.csv", (str(folder / "data"),))  # type: ignore[operator]
    assert ask(folder / "other" / "x.csv", ("/",)) is None  # type: ignore[operator]


@pytest.mark.parametrize("ask", [source, sink])
@pytest.mark.parametrize("path", ["rows\0.csv", "~nobody-at-all/rows.csv"])
def test_an_invalid_path_is_refused(ask: Callable[[Path, tuple[str, ...]], None], path: str) -> None:
    with pytest.raises(SbonError, match="is no path") as refused:
        ask(Path(path), ("/",))
    assert (refused.value.code, refused.value.where) == ("bad-option", "options.path")
