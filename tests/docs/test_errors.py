"""docs/errors.md lists the error codes that the source raises, and nothing else."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from tests.docs.reading import ROOT, text_of

sys.path.insert(0, str(ROOT / "docs" / "tools" / "errors"))
from collect import codes
from document import FILE, TABLE, document, sections

MADE_UP = """
KNOWN = {1: ("from-a-table", "text")}
def helper(code, message):
    return SbonError(code, message)
def pair():
    return "from-a-return", "text"
def calls(full):
    code, text = pair()
    raise helper(code, text)
def other(full, number):
    code = "full" if full else "not-full"
    name = KNOWN.get(number)
    raise SbonError(code, "text") if name is None else helper("from-a-call", "text")
ROWS = ((1, "from-a-row", "text"), (2, "from-another-row", "text"))
ANOTHER = "from-a-constant"
def fourth(number):
    for row, code, text in ROWS:
        if row == number:
            raise SbonError(code, text)
    raise SbonError(module.ANOTHER, "text")
def third(number):
    code, text = KNOWN.get(number, ("by-default", ""))
    raise ProtocolError(code, text)
"""

ROWS = {"from-a-row", "from-another-row", "from-a-constant"}


def test_every_code_in_the_source_has_an_entry_and_every_entry_a_code() -> None:
    listed = [code for section in sections(ROOT) for code in section.codes]
    assert len(listed) == len(set(listed)), "a code is in two sections"
    raised = codes(ROOT)
    assert sorted(set(raised) - set(listed)) == [], f"add them to {TABLE}"
    assert sorted(set(listed) - set(raised)) == [], f"nothing raises them: remove them from {TABLE}"


def test_the_document_is_what_the_generator_writes() -> None:
    assert text_of(ROOT / FILE) == document(ROOT), "run: make errors"


def test_every_entry_says_what_it_means_and_what_to_do() -> None:
    for table in tomllib.loads(text_of(ROOT / TABLE)).values():
        for code, entry in table.items():
            if isinstance(entry, list):
                assert len(entry) == 2, code
                assert all(re.fullmatch(r"[A-Z`].*\.", text) for text in entry), code


def test_codes_are_collected_through_helpers_tables_and_returns(tmp_path: Path) -> None:
    (tmp_path / "sbon_node").mkdir()
    (tmp_path / "sbon_node" / "made_up.py").write_text(MADE_UP)
    assert set(codes(tmp_path)) == {"from-a-table", "from-a-return", "full", "not-full", "from-a-call", "by-default", *ROWS}
