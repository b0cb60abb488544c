"""The bus of a node's events: receivers, order, and the report of missed events to a slow listener."""

from __future__ import annotations

from functools import partial

from sbon_node.base.events import Bus, Listener, Listening, LogLine, Lost, MemberChanged, NodeEvent


def joined(member: str) -> partial[MemberChanged]:
    return partial(MemberChanged, member=member, change="joined", state="alive")


def line(level: str, message: str) -> partial[LogLine]:
    return partial(LogLine, level=level, message=message)


def taken(listener: Listener) -> list[NodeEvent]:
    events = []
    while (event := listener.take()) is not None:
        events.append(event)
    return events


def words(events: list[NodeEvent]) -> list[str]:
    """Members, messages, and ``-n`` for n that were lost."""
    found = []
    for event in events:
        match event:
            case MemberChanged():
                found.append(event.member)
            case LogLine():
                found.append(event.message)
            case Lost():
                found.append(f"-{event.count}")
    return found


def test_each_listener_gets_its_kinds_of_events_from_then_on() -> None:
    bus = Bus("a", lambda: 1234)
    bus.publish("membership", joined("early"))
    woken: list[int] = []
    members = bus.listen(["membership"], limit=9, wake=lambda: woken.append(1))
    everything = bus.listen(["membership", "logs"], limit=9, wake=lambda: None)
    bus.publish("membership", joined("b"))
    bus.publish("logs", line("info", "said"))
    assert taken(members) == [
        Listening(node="a", at_ms=1234, kinds=("membership",), level="info"),
        MemberChanged(node="a", at_ms=1234, member="b", change="joined", state="alive"),
    ]
    assert len(woken) == 2
    assert words(taken(everything)) == ["b", "said"]
    bus.forget(members)
    bus.publish("membership", joined("late"))
    assert (taken(members), words(taken(everything))) == ([], ["late"])


def test_without_listeners_no_event_is_made() -> None:
    bus, times = Bus("a", lambda: 0), list[int]()

    def made(*, node: str, at_ms: int) -> NodeEvent:
        times.append(at_ms)
        return line("info", "said")(node=node, at_ms=at_ms)

    bus.publish("queries", made)
    other = bus.listen(["logs"], limit=9, wake=lambda: None)
    bus.publish("queries", made)
    assert times == []
    bus.publish("logs", made)
    bus.forget(other)
    bus.publish("logs", made)
    assert times == [0]


def test_a_slow_listener_gets_the_count_of_missed_events_in_order() -> None:
    bus = Bus("a", lambda: 0)
    slow, quick = (bus.listen(["membership"], limit=3, wake=lambda: None) for _ in range(2))
    for number in range(10):
        bus.publish("membership", joined(str(number)))
        taken(quick)
    assert isinstance(slow.take(), Listening)
    bus.publish("membership", joined("10"))
    bus.publish("membership", joined("11"))
    assert words(taken(slow)) == ["0", "1", "-8", "10", "-1"]
    bus.publish("membership", joined("12"))
    assert (words(taken(slow)), words(taken(quick))) == (["12"], ["10", "11", "12"])


def test_levels_are_each_listener_s_own() -> None:
    bus = Bus("a", lambda: 0)
    assert bus.least_level > 50
    told: list[int] = []
    bus.watch_listeners(lambda: told.append(bus.least_level))
    fine = bus.listen(["logs"], level="debug", limit=9, wake=lambda: None)
    coarse = bus.listen(["logs"], level="warning", limit=9, wake=lambda: None)
    for level in ("debug", "info", "warning", "error", "critical"):
        bus.publish("logs", line(level, level))
    assert words(taken(fine)) == ["debug", "info", "warning", "error", "critical"]
    assert words(taken(coarse)) == ["warning", "error", "critical"]
    bus.forget(fine)
    assert told == [10, 10, 30]


def test_the_last_events_are_kept_for_those_who_come_later() -> None:
    bus = Bus("a", lambda: 0, keep=3)
    for member in "bcdef":
        bus.publish("membership", joined(member))
        bus.publish("logs", line("info", f"of {member}"))
    assert words(taken(bus.listen(["membership", "logs"], limit=9, wake=lambda: None, past=100))) == ["d", "e", "f"]
    some = bus.listen(["membership"], limit=9, wake=lambda: None, past=2)
    bus.publish("membership", joined("g"))
    assert words(taken(some)) == ["e", "f", "g"]
    assert words(taken(bus.listen(["membership"], limit=2, wake=lambda: None, past=100))) == ["g"]
    assert words(taken(bus.listen(["placement"], limit=9, wake=lambda: None, past=100))) == []
    assert words(taken(bus.listen(["membership"], limit=9, wake=lambda: None))) == []
