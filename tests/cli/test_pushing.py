"""Posts of ``sbon stream push``, to a node that answers as the test says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sbon.model import Pushed, RefusedRow
from sbon_cli.commands.streams import push
from sbon_protocol.errors import SbonError


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
