"""Lifecycles: which transitions a node allows, and that no other file spells the states."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from sbon_protocol.api.states import (
    arrival_states,
    backup_states,
    kept_backup_states,
    move_states,
    operator_states,
    query_states,
    sink_states,
    source_states,
)
from sbon_protocol.api.states.lifecycle import Lifecycle
from sbon_protocol.errors import BrokenInvariantError
from sbon_protocol.moving import MoveStep

ROOT = Path(__file__).parents[2]
LIFECYCLES: tuple[Lifecycle[Any], ...] = (
    query_states.LIFECYCLE,
    operator_states.LIFECYCLE,
    source_states.LIFECYCLE,
    sink_states.LIFECYCLE,
    backup_states.LIFECYCLE,
    kept_backup_states.LIFECYCLE,
    move_states.LIFECYCLE,
    arrival_states.LIFECYCLE,
)
WORDS = frozenset(state for one in LIFECYCLES[:-3] for state in (*one.states, *one.derived))
WRITTEN = re.compile(rf"""["'](?:{"|".join(sorted(WORDS))})["']""")
"""Matches a file that may spell a state."""
OTHER_LIFECYCLES = {
    "sbon_node/api/server/http.py": "the HTTP server's",
    "sbon_node/api/server/serving.py": "the HTTP server's",
    "sbon_node/streams/links/link.py": "a link's",
    "cli/sbon_cli/commands/nodes/cluster.py": "a process's of a local cluster",
}
"""Files with states of something else."""

each = pytest.mark.parametrize("lifecycle", LIFECYCLES, ids=[one.subject for one in LIFECYCLES])


@each
def test_only_the_listed_transitions_are_allowed(lifecycle: Lifecycle[Any]) -> None:
    listed = {(one.before, one.after) for one in lifecycle.transitions}
    for before, after in product(lifecycle.states, repeat=2):
        if before == after or after == lifecycle.removed or (before, after) in listed:
            lifecycle.check_transition(before, after, "x")
        else:
            with pytest.raises(BrokenInvariantError, match=f"the {lifecycle.subject} x is {before} and must not become {after}"):
                lifecycle.check_transition(before, after, "x")


@each
def test_every_state_is_reached_and_every_terminal_state_is_final(lifecycle: Lifecycle[Any]) -> None:
    after = {state: {one.after for one in lifecycle.transitions if one.before == state} for state in lifecycle.states}
    assert {state for state, following in after.items() if not following} == lifecycle.terminal
    reached, open_ = {lifecycle.initial}, [lifecycle.initial]
    while open_:
        new = after[open_.pop()] - reached
        reached |= new
        open_ += new
    assert reached == set(lifecycle.states)


@pytest.mark.parametrize(
    "type_, states",
    [
        (query_states.QueryState, {**query_states.LIFECYCLE.states, **query_states.LIFECYCLE.derived}),
        (operator_states.OperatorState, operator_states.LIFECYCLE.states),
        (source_states.SourceState, source_states.LIFECYCLE.states),
        (sink_states.SinkState, sink_states.LIFECYCLE.states),
        (backup_states.BackupState, backup_states.LIFECYCLE.states),
        (kept_backup_states.KeptBackupState, kept_backup_states.LIFECYCLE.states),
        (move_states.MoveState, move_states.LIFECYCLE.states),
        (arrival_states.ArrivalState, arrival_states.LIFECYCLE.states),
        (MoveStep, move_states.LIFECYCLE.states),
    ],
)
def test_the_type_of_a_state_names_the_states_of_its_lifecycle(type_: Any, states: dict[str, str]) -> None:
    assert set(get_args(type_)) == set(states)


def test_a_query_that_is_not_over_is_in_a_live_state() -> None:
    assert set(query_states.LIFECYCLE.states) - query_states.LIFECYCLE.terminal == query_states.LIVE


def test_no_other_file_spells_a_state() -> None:
    files = [*sorted((ROOT / "sbon_node").rglob("*.py")), *sorted((ROOT / "cli").rglob("*.py"))]
    paths = [(path, str(path.relative_to(ROOT))) for path in files]
    spelt = [
        f"{name}:{line}: {word}"
        for path, name in paths
        if name not in OTHER_LIFECYCLES and not name.startswith("protocol/sbon_protocol/api/states/")
        if WRITTEN.search(text := path.read_text(encoding="utf-8"))
        for line, word in spelt_in(ast.parse(text))
    ]
    assert spelt == []


@pytest.mark.parametrize(
    "text, words",
    [
        ('one.state == "running"', ["running"]),
        ('"failed" != self.state', ["failed"]),
        ('state in ("placing", "gone", "lost")', ["placing", "lost"]),
        ('Finished(state="stopped")', ["stopped"]),
        ('self.state = "idle"', ["idle"]),
        ('self.state: State = "idle"', ["idle"]),
        ('self._enter("paused", reason)', ["paused"]),
        ('one.state.startswith("failed")', ["failed"]),
        ('member.state == "alive"; row["failed"] = "running"', []),
    ],
)
def test_states_are_noticed_where_they_are_compared_and_set(text: str, words: list[str]) -> None:
    assert [word for _, word in spelt_in(ast.parse(text))] == words


def test_no_file_of_moves_spells_a_step() -> None:
    folders = ("sbon_node/hosting/moving", "sbon_node/adaptation", "sbon_node/queries")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    steps = set(move_states.LIFECYCLE.states) - WORDS
    spelt = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for path in paths
        if "move_states" in (text := path.read_text(encoding="utf-8")) or "OperatorMove" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in steps
    ]
    assert len(paths) > 40
    assert spelt == []


def spelt_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield states, with their lines, that are compared with, assigned to, or passed on as something called a state."""
    for node in ast.walk(tree):
        values: list[ast.expr] = []
        match node:
            case ast.Compare(left, _, comparators) if any(map(_is_state, (left, *comparators))):
                values = [left, *comparators]
            case ast.keyword("state", value):
                values = [value]
            case ast.Assign([target], value) if _is_state(target):
                values = [value]
            case ast.AnnAssign(target, _, ast.expr() as value) if _is_state(target):
                values = [value]
            case ast.Call(ast.Attribute(value, "startswith"), arguments) if _is_state(value):
                values = arguments
            case ast.Call(ast.Attribute(_, "_enter" | "enter" | "tell" | "report" | "_conclude" | "_on_state"), arguments):
                values = arguments
        for one in values:
            yield from ((each.lineno, each.value) for each in _constants(one) if each.value in WORDS)


def _is_state(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.endswith("state")


def _constants(node: ast.expr) -> Iterator[Any]:
    match node:
        case ast.Constant():
            yield node
        case ast.Tuple(elements) | ast.Set(elements) | ast.List(elements):
            for one in elements:
                yield from _constants(one)
        case ast.IfExp(_, body, orelse):
            yield from _constants(body)
            yield from _constants(orelse)
