"""Random schedules that nobody has tried before, drawn from the commit; and the first 200, which find planted bugs."""

from __future__ import annotations

import itertools
import time

import pytest

from sbon_lab.bench import schedules
from sbon_lab.simulation.casting import NODES, Casting
from sbon_lab.simulation.faults.plan import AtFailpoint, Fault
from sbon_lab.simulation.schedule import run_schedule
from tests.commits import number_of_commit

MOST_S = 6.0
ALL_THAT_FAILED = pytest.mark.only_in_test_all("schedules that have failed before, of which each commit tries one")
FIRST_200 = 200
CHUNK = 20
FIRST_MOVES, CHUNK_OF_MOVES = 60, 5
FAILED_ONCE = {
    119: "an acceptor reads a change that it has not accepted",
    50064: "a disk that was full when it was wiped",
    50199: "a refused query whose acceptor was wiped is forgotten",
    50246: "a result of a refused query that its wiped consumer cannot know",
    50332: "a leader returned with a record that was never chosen",
    50502: "a wiped node whose address was swapped waits for its name",
    51110: "a receiver of a datagram was killed in its own code",
    70263: "a sink that is opened after its query is forgotten",
    920004: "a wiped node whose seed is down starts again",
    1000242: "a query fails whose user did not learn of its start",
    1000525: "a user leaves while the submission is undone",
    5000282: "a wiped node's submission that one acceptor knows",
    5000699: "a query that ends while its submission is undone",
    5001239: "an acceptor that had promised a higher ballot misses the end",
    5001386: "a paused host reserves after the query has ended",
    5001769: "an operator's register at a new acceptor outlives its query",
    5001772: "helpers know another instance of a wiped node",
    5002699: "an operator's register whose acceptor was wiped outlives its query",
    5003650: "an acceptor refuses the end that the others have accepted",
    5003663: "an acceptor meets a member that has just restarted",
    5004084: "all nodes that have the record of a query are down",
    5004777: "an acceptor of a full disk misses the end, and its submitter restarts",
    5005320: "a follower dies before it acknowledges the last frame",
    5007436: "a wiped node comes back at another address, and its old one is taken",
    5009561: "a host reserves late for a followed query",
    6002768: "the only acceptor that knows of the start is down",
    7001389: "a late reservation lapses while the nodes are asked for it",
    7004617: "the consumer lost its disk before the sink was opened there",
    7008984: "a record that only one acceptor has, of a submitter that was killed",
    37182452189: "a subscription is ended on a connection that is closed at once",
}

FAILED_ONCE_WITH_MOVES = {
    20039: "a follower's subscription moves along with the stream that it reads",
    645693790752: "a query ends while the former host of a moved operator is down",
    996587013817: "a full disk keeps the capacity of a follower that was not stored",
    100028: "a source of two readers waits for its fastest alone",
    100078: "a copy stays at a target whose disk was full",
    100104: "a batch whose input is gone ends with its query",
    100113: "a copy stays at a host whose disk is full when its query ends",
    400276: "a follower is forgotten while its disk is full",
    400876: "a reader has not heard yet that its source began anew",
    401028: "an operator goes live while its stream is over its quota",
    50211: "an operator is given to an instance of a node that has lost its disk",
}


def _try(seed: int, *, moves: bool = False) -> None:
    for failed in schedules._try_one(seed, moves=moves).failed:
        pytest.fail(f"schedule {seed}: {failed.reason}\nreplay: {failed.replay}\nshrunk: {failed.shrunk}", pytrace=False)


@pytest.mark.one_part_per_commit("faults in virtual time", parts=6)
def test_schedules_drawn_from_the_commit() -> None:
    """They follow each other until the time is over; one world after another, so that few undisturbed runs are needed."""
    first, end = number_of_commit(), time.monotonic() + MOST_S
    if first is None:
        pytest.skip("no commit: this is no clone")
    tried = 0
    for number in itertools.count():
        _try(first + number // 10 + number % 10 * schedules.WORLDS, moves=number % 20 < 10)
        tried += 1
        if time.monotonic() > end:
            break
    assert tried


def test_one_of_the_schedules_that_have_failed_before() -> None:
    """Each commit tries one, and the next commit another."""
    seeds = [*((seed, False) for seed in FAILED_ONCE), *((seed, True) for seed in FAILED_ONCE_WITH_MOVES)]
    seed, moves = seeds[(number_of_commit() or 0) % len(seeds)]
    _try(seed, moves=moves)


@ALL_THAT_FAILED
@pytest.mark.parametrize("seed", FAILED_ONCE, ids=FAILED_ONCE.values())
def test_schedules_that_have_failed_before(seed: int) -> None:
    _try(seed)


@ALL_THAT_FAILED
@pytest.mark.parametrize("seed", FAILED_ONCE_WITH_MOVES, ids=FAILED_ONCE_WITH_MOVES.values())
def test_schedules_with_moves_that_have_failed_before(seed: int) -> None:
    _try(seed, moves=True)


@pytest.mark.parametrize("seed, moves", [(0, False), (39, False), (1, True), (3, True)])
def test_schedules_that_find_planted_bugs(seed: int, moves: bool) -> None:
    """Without a bug they pass; the catalogue of bugs names them."""
    _try(seed, moves=moves)


def test_a_sink_that_is_opened_after_its_query_is_forgotten() -> None:
    """The call that opens it and the one that ends it wait while the submitter is cut off, and arrive at once."""
    casting = Casting(submitter="s", room=NODES, strategy="producer", sink="follow", fsync=False)
    cut = Fault(AtFailpoint("s", "answer", 4), "cut", "s", "c", down_s=15.805221592686777)
    outcome = run_schedule([cut], seed=13, casting=casting)
    assert (outcome.failure, outcome.ending) == ("", "refused")


@pytest.mark.only_in_test_all(f"chunks of {CHUNK_OF_MOVES} of the first schedules with moves")
@pytest.mark.parametrize("first", range(0, FIRST_MOVES, CHUNK_OF_MOVES))
def test_the_first_schedules_with_moves(first: int) -> None:
    for seed in range(first, first + CHUNK_OF_MOVES):
        _try(seed, moves=True)


@pytest.mark.only_in_test_all(f"chunks of {CHUNK} of the first schedules without moves")
@pytest.mark.parametrize("first", range(0, FIRST_200, CHUNK))
def test_the_first_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        _try(seed)
