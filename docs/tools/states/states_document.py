"""docs/states.md from the lifecycles in protocol/sbon_protocol/api/states."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from sbon_protocol.api.states import (
    arrival_states,
    backup_states,
    further_sink_states,
    kept_backup_states,
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
    kept_backup_states.LIFECYCLE,
    move_states.LIFECYCLE,
    arrival_states.LIFECYCLE,
)

_INTRODUCTION = """# States

The states of queries, operators, sources, sinks and backups, and the steps of moves, as `sbon`, the API and the dashboard show
them, and those of backups at the nodes that keep them. A node checks every transition against these tables, and raises an error
for any other: that would be a defect of its own. Where a table has a column *then*, its node takes from it what to do next.

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
            *(_driving(lifecycle) or _table(("from", "to", "when"), _transitions(lifecycle))),
            "",
        ]
    )


def _drawing(lifecycle: Lifecycle[Any]) -> list[str]:
    """Return a diagram in Mermaid, which Git hosts draw and which can be read as it is."""
    ids = {state: state.replace("-", "_") for state in lifecycle.states}  # An id has no hyphen.
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {ids[lifecycle.initial]}"]
    moves = [(ids[one.before], ids[one.after]) for one in lifecycle.transitions if one.before != one.after]
    lines += dict.fromkeys(f"    {before} --> {after}" for before, after in moves)
    return [*lines, *(f"    {ids[state]} --> [*]" for state in lifecycle.states if state in lifecycle.terminal), "```"]


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


def _driving(lifecycle: Lifecycle[Any]) -> list[str]:
    """Return the transitions with their instructions, and what these mean; nothing for a lifecycle without events."""
    befores: dict[tuple[str, str, str], list[str]] = {}
    for one in lifecycle.transitions:
        if one.event is not None:
            when = f"{one.when} (`{one.kind}`)" if one.kind else one.when
            after = "the same" if one.after == one.before else f"`{one.after}`"
            befores.setdefault((after, when, _named(*one.instructions)), []).append(f"`{one.before}`")
    if not befores:
        return []
    meanings = {_named(each): each.value for one in lifecycle.transitions for each in one.instructions}
    return [
        *_table(("from", "to", "when", "then"), [(", ".join(states), *row) for row, states in befores.items()]),
        "",
        *_table(("then", "meaning"), list(meanings.items())),
    ]


def _named(*instructions: StrEnum) -> str:
    return ", ".join(one.name.replace("_", " ").lower() for one in instructions)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [_row(heads), _row(tuple("---" for _ in heads)), *(_row(cells) for cells in rows)]


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
