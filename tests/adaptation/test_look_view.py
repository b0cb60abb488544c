"""The view of one look at a query: what was measured for it counts, and is measured once."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from sbon_node.adaptation.look import LookView
from sbon_node.placing import LiveNetworkView


async def test_a_measurement_of_this_look_outranks_what_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    async def measure(view: LiveNetworkView, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
        asked.extend(pairs)
        return {("b", "a"): 7.0} if pairs else {}

    monkeypatch.setattr(LiveNetworkView, "measure", measure)
    monkeypatch.setattr(LiveNetworkView, "latency_ms", lambda view, a, b: 99.0)
    context: Any = SimpleNamespace(rng=None)
    view = LookView(context, "q", 1.0)
    measured = [await view.measure(pairs) for pairs in ([("b", "a")], [("b", "a")], [("a", "b"), ("b", "b")])]
    assert measured == [{("b", "a"): 7.0}, {("b", "a"): 7.0}, {("a", "b"): 7.0}]
    assert [view.latency_ms(*pair) for pair in (("a", "b"), ("b", "a"), ("a", "c"))] == [7.0, 7.0, 99.0]
    assert asked == [("b", "a")]
