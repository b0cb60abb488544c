"""Joining: seeds, names, and refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbon_protocol.errors import SbonError
from tests.overlay.membership.sites import Site, World, in_virtual_time


def test_nodes_that_join_through_one_know_each_other_and_measure_the_way() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcdef")
        await world.until(lambda: all(len(s.membership.alive()) == 5 for s in sites), 5)
        await asyncio.sleep(30)
        for site in sites:
            views = site.membership.members()
            assert [v.name for v in views] == list("abcdef")
            assert {v.state for v in views} == {"alive"}
            for view in views:
                assert view.rtt_ms == pytest.approx(0.0 if view.name == site.membership.own_name else 200.0)
                assert view.address == world.at(view.name)
                assert view.coordinate is not None
            assert {change for _, change in site.heard} == {"joined"}
            assert site.counters.snapshot() == {}
        moved = sites[0].membership.coordinate_of("b")
        assert moved is not None
        assert moved.vector != (0.0, 0.0, 0.0)

    in_virtual_time(body)


def test_a_node_that_starts_again_elsewhere_is_found_there_before_anybody_misses_it() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abcd")
        await asyncio.sleep(10)
        world.processes["d"].kill()
        await world.start("e", "a", called="d", incarnation=2)
        await world.until(lambda: all(s.membership.address_of("d") == world.at("e") for s in sites[:3]), 3)
        assert all(s.states()["d"] == "alive" and s.membership.rtt_ms("d") is None for s in sites[1:3])
        await asyncio.sleep(30)
        assert not [event for site in sites[:3] for event in site.heard if event[1] == "died"]
        assert all(s.membership.rtt_ms("d") == pytest.approx(200.0) for s in sites[:3])

    in_virtual_time(body)


@pytest.mark.parametrize(
    "joiner, seeds, code",
    [
        ({"called": "a", "instance": "i-other"}, "a", "name-taken"),
        ({"called": "b", "instance": "i-other"}, "a", "name-taken"),
        ({"cluster": "elsewhere"}, "a", "wrong-cluster"),
        ({}, "xy", "join-failed"),
    ],
)
def test_a_refused_join_has_a_reason(joiner: dict[str, str], seeds: str, code: str) -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("ab")
        await asyncio.sleep(2)
        with pytest.raises(SbonError) as refused:
            await world.start("d", *seeds, **joiner)  # type: ignore[arg-type]
        assert refused.value.code == code
        if joiner.get("called") == "b":
            told = refused.value.message
            assert f"alive for 2 s at {world.at('b')}; if it has died, that is known in at most" in told
        if code == "join-failed":
            assert [line.split(": ")[0] for line in refused.value.details] == [str(world.at("x")), str(world.at("y"))]
        assert [list(s.states()) for s in sites] == [["a", "b"]] * 2

    in_virtual_time(body)


@pytest.mark.parametrize("state", ["dead", "away"])
def test_the_name_of_a_lost_node_changes_hands_if_the_next_instance_says_so(state: str) -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abc")
        await world.until(lambda: all("c" in s.states() for s in sites), 5)
        if state == "away":
            await world.processes["c"].start(sites[2].membership.go_away())
        world.processes["c"].kill()
        await world.until(lambda: all(s.states()["c"] == state for s in sites[:2]), 15)
        await asyncio.sleep(10)
        message = await _refusal(world, "d", "a", called="c", instance="i-new")
        assert message.startswith(f"the name 'c' belongs to a node with another data directory, {state} for 1")
        await asyncio.sleep(30)
        assert [(s.states()["c"], _instance(s, "c")) for s in sites[:2]] == [(state, "i-c")] * 2
        await world.start("d", "a", called="c", instance="i-new", replace=True)
        await world.until(lambda: all(s.states()["c"] == "alive" for s in sites[:2]), 5)
        assert [s.membership.address_of("c") for s in sites[:2]] == [world.at("d")] * 2
        for seed in "ab":
            message = await _refusal(world, "c", seed, incarnation=2)
            assert message.startswith("a node with another data directory has taken the name 'c' over, alive for")
        world.processes["d"].kill()
        await world.until(lambda: all(s.states()["c"] == "dead" for s in sites[:2]), 15)
        await world.start("c", "b", incarnation=3, replace=True)
        await world.until(lambda: all(_instance(s, "c") == "i-c" for s in sites[:2]), 5)

    in_virtual_time(body)


def test_a_name_stays_with_its_data_directory_though_another_runs_at_its_address() -> None:
    async def body(world: World) -> None:
        sites = await world.cluster("abc")
        await world.until(lambda: all("c" in s.states() for s in sites), 5)
        world.processes["c"].kill()
        await world.until(lambda: any(s.states()["c"] == "suspect" for s in sites[:2]), 15)
        # While it waits for seeds that do not answer, it is pinged at the last instance's address.
        assert "another node is called 'c'" in await _refusal(world, "c", *"xyz", "a", instance="i-new")
        assert {_instance(site, "c") for site in sites[:2]} == {"i-c"}
        await world.start("c", "a", instance="i-new", replace=True)
        await world.until(lambda: all(_instance(s, "c") == "i-new" for s in sites[:2]), 5)

    in_virtual_time(body)


async def _refusal(world: World, *start: str, **named: Any) -> str:
    """Return why a start is refused; its process is ended."""
    with pytest.raises(SbonError) as refused:
        await world.start(*start, **named)
    assert refused.value.code == "name-taken"
    world.processes[start[0]].kill()
    return refused.value.message


def test_a_dead_seed_is_passed_over_and_one_that_is_oneself_founds_a_cluster() -> None:
    async def body(world: World) -> None:
        first = await world.start("a", "a")
        assert first.states() == {"a": "alive"}
        second = await world.start("b", "x", "b", "a")
        assert list(second.states()) == ["a", "b"]

    in_virtual_time(body)


def test_unknown_nodes_are_named() -> None:
    async def body(world: World) -> None:
        site = await world.start("a")
        with pytest.raises(SbonError) as refused:
            site.membership.address_of("nobody")
        assert refused.value.code == "unknown-node"
        assert site.membership.get("nobody") is None

    in_virtual_time(body)


def test_an_instance_that_joins_where_nobody_knew_the_last_one_succeeds_it_everywhere() -> None:
    """``c`` answers the pings for its last instance, which so never dies for ``b``; ``a``, through which it joins, is new."""

    async def body(world: World) -> None:
        await world.cluster("abc")
        await asyncio.sleep(10)
        for name in "ac":
            world.processes[name].kill()
        a = await world.start("a", incarnation=2)
        c = await world.start("c", "a", instance="i-anew")
        b = world.sites["b"]
        await b.membership.join([world.at("a")])
        await world.until(lambda: {_instance(site, "c") for site in (a, b, c)} == {"i-anew"}, 60)
        assert all(set(site.states().values()) == {"alive"} for site in (a, b, c))

    in_virtual_time(body)


def _instance(site: Site, name: str) -> str:
    member = site.membership.get(name)
    return "" if member is None else member.instance
