"""What a person sees of the Python API at a prompt or in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import sbon
from sbon import connect, model
from sbon.model import Listing


def test_the_package_lists_what_it_has() -> None:
    assert set(sbon.__all__) <= set(dir(sbon))
    assert all(getattr(sbon, name) is not None for name in dir(sbon))


def test_answers_are_broken_into_lines(api: str, node: Any) -> None:
    overlay = connect(api)
    for answer in (overlay.members(), overlay.streams(), overlay.queries(), overlay.query("q1").info(), overlay.status()):
        text = str(answer)
        assert max(map(len, text.splitlines())) <= 160, text
        assert text.splitlines()[0].split()[0].rstrip("(") in ("name", "id", "QueryInfo", "NodeStatus")
    assert repr(overlay.members()).splitlines()[0].split()[:3] == ["name", "state", "address"]
    assert [line.split()[0] for line in repr(overlay.members()).splitlines()[1:]] == ["a", "b"]
    explained = str(overlay.explain("SELECT 1"))
    assert "\n" in explained
    assert max(map(len, explained.splitlines())) <= 160, explained


def test_a_record_leaves_out_defaults_and_cuts_what_is_long() -> None:
    assert repr(model.Pushed(source="s", rows=3)) == "Pushed(source='s', rows=3)"
    refused = tuple(model.RefusedRow(line=number, reason="x" * 200) for number in range(14))
    pushed = model.Pushed(source="s", rows=3, bad=14, refused=refused)
    lines = str(pushed).splitlines()
    assert lines[0] == "Pushed("
    assert lines[1] == "    source='s',"
    assert lines[-3:] == ["        … 4 more", "    ],", ")"]
    assert lines[7] == f"            reason='{'x' * 79}…',"
    assert repr(pushed) == "<Pushed source=s, rows=3, bad=14, refused=14>"


def test_a_large_answer_is_a_line_of_what_identifies_it(api: str, node: Any) -> None:
    node.reason = "no answer from b:\nit is dead since 2026-03-02 09:00:00 UTC, and was its only host"
    overlay = connect(api)
    query = overlay.query("q1")
    explained, placement = overlay.explain("SELECT 1"), overlay.explain_placement("SELECT 1")
    answers = (query.info(), explained, placement, query.query_usage(), overlay.status(), overlay.stream("flights"))
    for answer in answers:
        text = repr(answer)
        assert (len(text.splitlines()), len(text) <= 140) == (1, True), text
        assert text.startswith(f"<{type(answer).__name__} "), text
    assert repr(query.info()).startswith("<QueryInfo id=q1, state=running, reason=no answer from b: it is dead since 2026-03-0")
    begins = "<Explanation state=planned, strategy=hybrid, consumer=a, usage=2,000.0, sql=SELECT 1>"
    assert repr(explained) == begins
    assert "state=planned, strategy=hybrid, objective=usage, consumer=a, sql=SELECT 1>" in repr(placement)


def test_a_long_list_says_how_many_more_there_are() -> None:
    many = Listing(model.RefusedRow(line=number, reason="") for number in range(70))
    assert repr(many).splitlines()[-1] == "… 10 more"
    assert repr(many[:0]) == repr(Listing()) == "[]"


def test_a_notebook_shows_tables(api: str) -> None:
    class Cells(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.cells: list[str] = []

        def handle_data(self, data: str) -> None:
            self.cells.append(data)

    read = Cells()
    read.feed(connect(api).members()._repr_html_())
    assert {"name", "rtt_ms", "a", "b", "91.2"} <= set(read.cells)
    assert "&lt;b&gt;" in model.RefusedRow(line=1, reason="<b>")._repr_html_()
