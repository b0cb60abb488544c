"""docs/states.md from the lifecycles in protocol/sbon_protocol/api/states."""

from __future__ import annotations

from typing import Any

from sbon_protocol.api.states import (
    backup_states,
    further_sink_states,
    move_states,
    operator_states,
    query_states,
    sink_states,
    source_states,
)
from sbon_protocol.api.states.lifecycle import Lifecycle

FILE = "docs/states.md"

LIFECYCLES: tuple[Lifecycle[Any], ...] = (
    query_states.LIFECYCLE,
    operator_states.LIFECYCLE,
    source_states.LIFECYCLE,
    sink_states.LIFECYCLE,
    further_sink_states.LIFECYCLE,
    backup_states.LIFECYCLE,
    move_states.LIFECYCLE,
)

_INTRODUCTION = """# States

The states of queries, operators, sources, sinks and backups, and the steps of moves, as `sbon`, the API and the dashboard show
them. A node checks every transition against these tables, and raises an error for any other: that would be a defect of its own.

A state may have a reason, which follows it or stands beside it. The node that runs the thing never reports a *derived* state:
another node shows it, for example where that node does not answer. `make states` writes this page from
`protocol/sbon_protocol/api/states`.
"""


def document() -> str:
    return "\n".join([_INTRODUCTION, *(_shown(lifecycle) for lifecycle in LIFECYCLES)]).rstrip("\n") + "\n"


def _shown(lifecycle: Lifecycle[Any]) -> str:
    return "\n".join(
        [
            f"## {lifecycle.subject.capitalize()}",
            "",
            *_drawing(lifecycle),
            "",
            *_table(("state", "meaning", "kind"), _states(lifecycle)),
            "",
            *_table(("from", "to", "when"), _transitions(lifecycle)),
            "",
        ]
    )


def _drawing(lifecycle: Lifecycle[Any]) -> list[str]:
    """Return a diagram in Mermaid, which Git hosts draw and which can be read as it is."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {lifecycle.initial}"]
    lines += [f"    {one.before} --> {one.after}" for one in lifecycle.transitions]
    lines += [f"    {state} --> [*]" for state in lifecycle.states if state in lifecycle.terminal]
    return [*(line.replace("given-up", "given_up") for line in lines), "```"]  # An id has no hyphen.


def _states(lifecycle: Lifecycle[Any]) -> list[tuple[str, str, str]]:
    own = [(f"`{state}`", meaning, _kind(lifecycle, state)) for state, meaning in lifecycle.states.items()]
    return [*own, *((f"`{state}`", meaning, "derived") for state, meaning in lifecycle.derived.items())]


def _kind(lifecycle: Lifecycle[Any], state: str) -> str:
    if state == lifecycle.initial:
        return "first"
    return "terminal" if state in lifecycle.terminal else ""


def _transitions(lifecycle: Lifecycle[Any]) -> list[tuple[str, str, str]]:
    rows = [(f"`{one.before}`", f"`{one.after}`", one.when) for one in lifecycle.transitions]
    removal = [] if lifecycle.removed is None else [("any", f"`{lifecycle.removed}`", "its host removes it")]
    return [*rows, *removal]


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]] | list[tuple[str, str, str]]) -> list[str]:
    return [_row(heads), _row(tuple("---" for _ in heads)), *(_row(cells) for cells in rows)]


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
