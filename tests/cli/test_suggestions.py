"""Unknown commands: the error names the command that may be meant."""

from __future__ import annotations

import pytest

from sbon_cli.options.examples import examples
from sbon_cli.options.suggestions import OTHER_NAMES
from tests.cli.commands import run


@pytest.mark.parametrize(
    "typed, meant",
    [
        ("strem list", "sbon stream"),
        ("query migarte q b0 --to paris", "sbon query migrate"),
        ("query move q b0", "sbon query migrate"),
        ("move q b0", "sbon query migrate"),
        ("migrate q b0", "sbon query migrate"),
        ("node leave", "sbon leave"),
        ("cluster drain london", "sbon drain"),
        ("drian london", "sbon drain"),
        ("detach trades", "sbon stream detach"),
        ("xyzzy", ""),
    ],
)
def test_an_unknown_command_is_refused_with_the_real_one(typed: str, meant: str) -> None:
    result = run("http://127.0.0.1:1", *typed.split())
    assert (result.exit_code, "No such command" in result.stderr) == (2, True)
    assert ("Did you mean" in result.stderr) == bool(meant)
    assert f"Did you mean '{meant}'?" in result.stderr or not meant


def test_a_query_that_is_to_be_paused_is_not_shown_a_command_that_sounds_alike() -> None:
    result = run("http://127.0.0.1:1", "query", "pause", "q1")
    assert (result.exit_code, "Did you mean" in result.stderr) == (2, False)
    assert "A query cannot be paused: 'sbon query stop' ends it." in result.stderr


def test_other_names_are_no_commands_and_stand_for_real_ones() -> None:
    assert not set(OTHER_NAMES) & set(examples())
    assert set(OTHER_NAMES.values()) <= set(examples())
