"""A submission claims its sink's path before anything runs, frees it when refused, and never overwrites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sinks.registry import check_sink
from sbon_protocol.errors import SbonError
from tests.connectors.file_sinks import FORMATS, World, opened, withdrawn
from tests.connectors.sent_streams import EXPECTED
from tests.full_disks import no_room


@pytest.mark.parametrize("name", FORMATS)
def test_existing_files_are_not_touched(tmp_path: Path, name: str) -> None:
    foreign = tmp_path / name / "x" if name == "out.parquet" else tmp_path / name
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("mine")
    for call in (lambda o: check_sink("file", o, ConnectorSettings()), opened):
        with pytest.raises(SbonError) as caught:
            call({"path": str(tmp_path / name)})
        assert caught.value.code == "sink-exists"
    assert foreign.read_text() == "mine"


def test_two_sinks_cannot_share_a_path(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "out.csv")}
    opened(options)
    with pytest.raises(SbonError) as caught:
        opened(options)
    assert caught.value.code == "sink-exists"


def test_a_folder_that_takes_no_files_is_not_said_to_be_missing() -> None:
    with pytest.raises(SbonError) as caught:
        opened({"path": "/proc/out.csv"})
    assert (caught.value.code, caught.value.where) == ("bad-option", "options.path")
    assert "no file can be made" in caught.value.message or "may not be written to" in caught.value.message


def found_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.glob("**/*")}


@pytest.mark.parametrize("name", FORMATS)
def test_a_claim_that_fails_half_way_leaves_nothing(tmp_path: Path, name: str) -> None:
    options = {"path": str(tmp_path / name)}
    with no_room(), pytest.raises(SbonError) as caught:
        opened(options)
    assert caught.value.code == "disk-full"
    assert found_under(tmp_path) == set()
    opened(options)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("delivered", [False, True])
def test_a_refused_submission_leaves_the_path_free(tmp_path: Path, name: str, delivered: bool) -> None:
    world = World(tmp_path / name, part_s=0.1)
    if delivered:
        world.run()
        assert world.rows() == EXPECTED
    else:
        opened(world.options)
    for _ in range(2):  # it may be repeated
        withdrawn(world.options, "mine", delivered=True)
        assert found_under(tmp_path) == set()
    check_sink("file", world.options, ConnectorSettings())


@pytest.mark.parametrize("name", FORMATS)
def test_a_stopped_query_keeps_what_it_has_delivered(tmp_path: Path, name: str) -> None:
    world = World(tmp_path / name)
    world.run()
    withdrawn(world.options, "mine", delivered=False)
    assert world.rows() == EXPECTED


@pytest.mark.parametrize("name", FORMATS)
def test_withdrawing_touches_nothing_of_others(tmp_path: Path, name: str) -> None:
    theirs = World(tmp_path / name)
    theirs.run()
    before = found_under(tmp_path)
    withdrawn(theirs.options, "another", delivered=True)
    assert found_under(tmp_path) == before
    assert theirs.rows() == EXPECTED


def test_withdrawing_keeps_a_folder_and_files_that_were_there_or_came(tmp_path: Path) -> None:
    folder = tmp_path / "out.parquet"
    folder.mkdir()
    options = {"path": str(folder)}
    opened(options)
    withdrawn(options, "mine", delivered=True)
    assert folder.is_dir()
    folder.rmdir()
    opened(options)
    (folder / "notes").write_text("theirs")
    withdrawn(options, "mine", delivered=True)
    assert found_under(tmp_path) == {"out.parquet", "out.parquet/notes"}


def test_a_result_of_another_claim_is_not_continued(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "out.csv")}
    opened(options, "mine")
    with pytest.raises(SbonError) as caught:
        opened(options, "another", fresh=False)
    assert caught.value.code == "sink-lost"


@pytest.mark.parametrize(
    "kind, options, code, where",
    [
        ("file", {}, "bad-option", "options.path"),
        ("file", {"path": "/nowhere/at/all.csv"}, "bad-option", "options.path"),
        ("file", {"path": "x.doc"}, "bad-option", "options.format"),
        ("file", {"path": "x.csv", "fromat": "csv"}, "unknown-option", "options.fromat"),
        ("kafka", {}, "unknown-sink", "sink.kind"),
        ("follow", {"path": "x"}, "unknown-option", "options.path"),
    ],
)
def test_bad_options_are_refused_at_submission(kind: str, options: dict[str, Any], code: str, where: str) -> None:
    with pytest.raises(SbonError) as caught:
        check_sink(kind, options, ConnectorSettings())
    assert (caught.value.code, caught.value.where) == (code, where)
