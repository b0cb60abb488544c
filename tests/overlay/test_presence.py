"""Whether nodes are there, and the table of when each part of a node takes another one to be gone for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_node.overlay import presence
from sbon_node.overlay.membership.table import Table
from sbon_node.overlay.presence import RULES, Presence, Rule, Watch, may_be
from sbon_protocol.messages import MemberState
from tests.overlay.membership.cores import member

GRACE_S = 60.0
MINE = "i-b"
"""The instance of node b, of which the tests ask."""


class World:
    """Node a with its table and a clock that the test sets; it begins to run at 100 s."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.table = Table(member("a"), 100)
        graces = {rule.setting: GRACE_S for rule in RULES}
        self.presence = Presence(self.table, lambda: self.now_s, lambda: int(self.now_s * 1000), graces)

    def hear(self, state: str, *, instance: str = MINE, incarnation: int = 1) -> None:
        """Let node b be seen in that state; an unknown one is not heard of."""
        if state == "unknown":
            return
        self.table.hear(member("b", "alive", incarnation, instance=instance), self.now_s)
        if state != "alive":
            self.table.mark("b", state, incarnation, self.now_s)  # type: ignore[arg-type]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    "state, away, absence",
    [
        ("alive", "", ""),
        ("suspect", "", ""),
        ("away", "is away", "is away since 1970-01-01 00:01:40 UTC"),
        ("dead", "is dead", "is dead since 1970-01-01 00:01:40 UTC"),
        ("left", "has left", "has left since 1970-01-01 00:01:40 UTC"),
        ("unknown", "is not a member", "is not a member"),
    ],
)
def test_who_is_away_and_since_when(world: World, state: str, away: str, absence: str) -> None:
    world.hear(state)
    world.now_s += 5
    asked = world.presence
    assert (asked.away("b"), asked.absence("b")) == (away, absence)
    silent = "no answer from b, its host"
    assert asked.no_answer("b", "its host") == (f"{silent}: it {absence}" if absence else silent)
    is_there = not away
    assert (asked.has("b", MINE), asked.has_lost_disk("b", MINE)) == (is_there, False)
    assert (asked.has("b", "i-other"), asked.has_lost_disk("b", "i-other")) == (False, is_there)


@pytest.mark.parametrize("state", ["alive", "left"])
def test_a_node_is_there_to_itself(world: World, state: MemberState) -> None:
    world.table.own = member("a", state)
    assert (world.presence.away("a"), world.presence.absence("a")) == ("", "")
    assert world.presence.has("a", "i-a")
    assert world.presence.has_lost_disk("a", "i-before")


NEVER = ("", "")
AT_ONCE = ("missing", "missing")
LATER = ("", "missing")
HAS_LEFT = ("left", "left")
DISK = ("lost-disk", "lost-disk")
STATES = ("alive", "suspect", "away", "dead", "left", "unknown")
TABLE = {
    # by standing: alive, suspect, away, dead, left, unknown; before and after the grace
    "AS_HOST": (NEVER, NEVER, NEVER, AT_ONCE, HAS_LEFT, LATER),
    "AS_SINK": (NEVER, NEVER, NEVER, AT_ONCE, HAS_LEFT, LATER),
    "AS_PART": (NEVER, NEVER, NEVER, NEVER, HAS_LEFT, LATER),
    "AS_ACCEPTOR": (NEVER, NEVER, NEVER, LATER, HAS_LEFT, LATER),
    "AS_SUBMITTER": (NEVER, NEVER, LATER, LATER, LATER, LATER),
    "AS_BACKUP": (NEVER, NEVER, LATER, LATER, HAS_LEFT, LATER),
    "AS_FOLLOWER": (NEVER, NEVER, NEVER, NEVER, HAS_LEFT, AT_ONCE),
    "AS_AWAITED": (NEVER, NEVER, NEVER, AT_ONCE, HAS_LEFT, AT_ONCE),
    "AS_FORMER_HOST": (NEVER, NEVER, NEVER, NEVER, HAS_LEFT, NEVER),
}
ANOTHER = {
    # the same for a node of that name with another data directory, where it differs
    "AS_HOST": {"alive": DISK},
    "AS_SINK": {"alive": DISK},
    "AS_PART": {"alive": DISK, "suspect": DISK, "away": DISK, "dead": DISK},
    "AS_ACCEPTOR": {"alive": DISK, "suspect": DISK, "away": DISK, "dead": DISK},
    "AS_SUBMITTER": {"alive": DISK, "suspect": DISK, "away": DISK, "dead": DISK, "left": DISK},
    "AS_BACKUP": {"alive": DISK, "suspect": DISK},
    "AS_FOLLOWER": {"alive": DISK, "suspect": DISK, "away": DISK, "dead": DISK},
}


def rule_of(name: str) -> Rule:
    rule = getattr(presence, name)
    assert isinstance(rule, Rule)
    return rule


def test_the_cases_are_those_of_all_rules() -> None:
    assert tuple(rule_of(name) for name in TABLE) == RULES
    assert len({rule.meaning for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", TABLE)
def test_when_a_node_is_gone_for_good(world: World, name: str, state: str) -> None:
    world.hear(state)
    rule, expected = rule_of(name), TABLE[name][STATES.index(state)]
    assert tuple(world.presence.gone(rule, "b", MINE, after_s) for after_s in (59.9, 60.0)) == expected
    assert tuple(world.presence.gone(rule, "b", "", after_s) for after_s in (59.9, 60.0)) == expected
    another = ANOTHER.get(name, {}).get(state, expected)
    assert tuple(world.presence.gone(rule, "b", "i-before", after_s) for after_s in (59.9, 60.0)) == another


@pytest.mark.parametrize("name", TABLE)
def test_a_node_that_leaves_judges_itself_except_for_its_sinks(world: World, name: str) -> None:
    world.table.own = member("a", "left")
    expected = {"AS_SINK": "", "AS_SUBMITTER": "missing"}.get(name, "left")
    assert world.presence.gone(rule_of(name), "a", "i-a", GRACE_S) == expected
    assert world.presence.gone(presence.AS_SINK, "a", "i-before", 0.0) == "lost-disk"


def test_an_unknown_node_is_gone_once_this_one_has_run_for_longer_than_the_grace(world: World) -> None:
    world.now_s += GRACE_S
    assert world.presence.gone(presence.AS_HOST, "b", MINE) == ""
    world.now_s += 0.1
    assert world.presence.gone(presence.AS_HOST, "b", MINE) == "missing"


def test_users_hear_why_a_part_is_lost(world: World) -> None:
    world.now_s += GRACE_S + 1
    asked = world.presence
    assert asked.why_gone("b", MINE) == "b has not been there for 60 s"
    world.hear("alive")
    assert asked.why_gone("b", MINE) == asked.why_gone("b", "") == ""
    assert asked.why_gone("b", "i-before") == "b has lost its data directory: it is back with another one"
    world.hear("dead", incarnation=2)
    assert asked.why_gone("b", MINE) == ""
    assert asked.why_gone("b", "i-before") == "b has lost its data directory: it was back with another one"
    world.hear("left", incarnation=3)
    assert asked.why_gone("b", "i-before") == "b has left the cluster"


def test_a_watch_counts_from_when_it_first_misses_a_node(world: World) -> None:
    watch = world.presence.watch(presence.AS_ACCEPTOR)
    world.hear("dead")
    world.now_s += 1000
    assert watch.gone("b", MINE) == ""
    world.now_s += GRACE_S - 1
    assert watch.gone("b", MINE) == ""
    world.now_s += 1
    assert watch.gone("b", MINE) == "missing"


@pytest.mark.parametrize("end", ["returns", "forgotten", "not kept"])
def test_the_grace_begins_anew(world: World, end: str) -> None:
    watch: Watch = world.presence.watch(presence.AS_BACKUP)
    world.hear("away")
    assert watch.gone("b", MINE, "one") == watch.gone("b", MINE, "another") == ""
    world.now_s += GRACE_S
    if end == "returns":
        world.hear("alive", incarnation=2)
        assert watch.gone("b", MINE, "one") == ""
        world.hear("away", incarnation=2)
    elif end == "forgotten":
        watch.forget("one")
    else:
        watch.keep({"another"})
    assert watch.gone("b", MINE, "one") == ""
    assert watch.gone("b", MINE, "another") == "missing"


@pytest.mark.parametrize("known, instance, may", [("i", "i", True), ("", "i", True), ("i", "other", False), ("i", "", False)])
def test_only_a_node_of_unknown_instance_may_be_any(known: str, instance: str, may: bool) -> None:
    assert may_be(known, instance) is may


def test_the_design_has_the_table_of_rules() -> None:
    """A rule with its states, in the order of their gravity, and its setting is a row of the table."""

    def named(states: frozenset[presence.Standing]) -> str:
        return "any" if states == presence.ANY else ", ".join(state for state in STATES if state in states)

    text = (Path(__file__).parents[2] / "docs" / "design.md").read_text()
    for rule in RULES:
        cells = (
            named(rule.at_once),
            named(rule.after - rule.at_once),
            rule.setting and f"`{rule.setting}`",
            named(rule.replaced_in),
        )
        assert "| ".join(("", rule.meaning + " ", *(f"{cell} " if cell else "" for cell in cells))) + "|\n" in text
