"""docs/states.md shows the lifecycles as they are in the code."""

from __future__ import annotations

import sys

from tests.docs.reading import ROOT, text_of

sys.path.insert(0, str(ROOT / "docs" / "tools" / "states"))
from states_document import FILE, LIFECYCLES, document


def test_the_document_is_what_the_generator_writes() -> None:
    assert text_of(ROOT / FILE) == document(), "run: make states"


def test_every_lifecycle_is_drawn() -> None:
    folder = ROOT / "protocol" / "sbon_protocol" / "api" / "states"
    assert {f"{one.subject.replace(' ', '_')}_states" for one in LIFECYCLES} == {path.stem for path in folder.glob("*_states.py")}
