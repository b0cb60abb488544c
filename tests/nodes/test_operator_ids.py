"""Operator ids come from peers and name folders."""

from __future__ import annotations

import pytest

from sbon_protocol.api.operators import OperatorSpec
from sbon_protocol.codec import decode_record
from sbon_protocol.errors import ProtocolError

RECORD = {"query": "q", "fragment": "SELECT 1 FROM in0", "inputs": [], "schema": []}


@pytest.mark.parametrize("name", ["q1.b0", "late.b12", "a", "A-b_c.d"])
def test_ids_as_planners_make_them_are_taken(name: str) -> None:
    assert decode_record({**RECORD, "id": name}, OperatorSpec).id == name


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "a..b", ".a", "a.", "a\n", "a\0", "x" * 129])
def test_ids_that_would_leave_the_folder_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError):
        decode_record({**RECORD, "id": name}, OperatorSpec)
