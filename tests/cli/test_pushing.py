"""Posts of ``sbon stream push``, to a node that answers as the test says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon.model import Pushed, RefusedRow
from sbon_cli.commands.streams import push
from sbon_protocol.errors import SbonError
from tests.cli.commands import run


class Scripted:
    """A node that loses its first answer to each post, and refuses the last row of each."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, bytes]] = []

    def push(self, stream: str, body: bytes, media_type: str, *, source: str, key: str) -> Pushed:
        self.posts.append((key, body))
        if len(self.posts) % 2:
            raise SbonError("node-unreachable", "the connection ended")
        rows = body.count(b"\n")
        return Pushed(source=source, rows=rows - 2, late=0, bad=1, refused=(RefusedRow(line=rows, reason=body[-3:].decode()),))


def test_a_repeated_post_keeps_its_key_and_lines_are_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "POST_BYTES", 16)
    lines = ["n", *(f"{number:02}" for number in range(2, 40))]
    (tmp_path / "numbers.csv").write_text("".join(f"{line}\n" for line in lines))
    node: Any = Scripted()
    with open(tmp_path / "numbers.csv", "rb") as file:
        pushing = push.Pushing(node, "s", "posts", lambda text: None, lambda: (node, "posts"), sleep=lambda seconds: None)
        pushed = pushing.all(push.Records(file, "csv"))
    assert node.posts[::2] == node.posts[1::2]
    assert len({key for key, _ in node.posts}) == len(node.posts) // 2 > 2
    assert b"".join(body.removeprefix(b"n\n") for _, body in node.posts[::2]).decode().split() == lines[1:]
    assert [f"{row.line:02}\n" for row in pushed.refused] == [row.reason for row in pushed.refused]


def test_rows_without_a_line_of_names_are_posted_as_such(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('1,"a\nb"\n2,c\n')
    with open(tmp_path / "rows.csv", "rb") as file:
        records = push.Records(file, "csv", header=False)
        assert (records.media_type, list(records)) == ("text/csv; header=absent", [(0, b'1,"a\nb"\n2,c\n')])


@pytest.mark.parametrize("begin", [b"PAR1\x15\x04", b"\x1f\x8b\x08\x00", b"PK\x03\x04"])
def test_a_file_that_is_no_text_is_refused_with_the_formats_that_push_takes(tmp_path: Path, begin: bytes) -> None:
    (tmp_path / "rows").write_bytes(begin)
    with (
        open(tmp_path / "rows", "rb") as file,
        pytest.raises(SbonError, match=r"takes CSV \(\.csv, \.tsv\) and NDJSON") as refused,
    ):
        push.Records(file, None)
    assert "sbon stream attach STREAM --file FILE" in refused.value.hint


def test_other_formats_than_csv_have_names_in_each_row(api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "_where", lambda *of: (None, "posts"))
    (tmp_path / "rows.ndjson").write_text('{"n": 1}\n')
    result = run(api, "stream", "push", "s", str(tmp_path / "rows.ndjson"), "--no-header")
    assert (result.exit_code, "--no-header: NDJSON has no line of column names" in result.stderr) == (2, True)
