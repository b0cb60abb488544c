"""Persons, auctions and bids of an online auction, after the NEXMark benchmark (Tucker, Tufte, Papadimos, Maier, 2002).

Columns and proportions are those of Beam and Flink: 1 of 50 events is a person, 3 are auctions, 46 are bids. Half of the bids
go to a hot auction, and most auctions have a hot seller and most bids a hot bidder. Times advance by a fixed step per event.
"""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sbon_node.model.schema import parse_schema
from sbon_protocol.api.catalogue import StreamDeclaration

PERSON = StreamDeclaration(
    name="person",
    schema=parse_schema(
        "id bigint, name string, email string, credit_card string, city string, state string, ts timestamp, extra string"
    ),
    event_time="ts",
    delay_ms=10_000,
    comment="NEXMark: who sells and bids, when they register",
)
AUCTION = StreamDeclaration(
    name="auction",
    schema=parse_schema(
        "id bigint, item_name string, description string, initial_bid bigint, reserve bigint, ts timestamp, expires timestamp,"
        " seller bigint, category bigint, extra string"
    ),
    event_time="ts",
    delay_ms=1000,
    comment="NEXMark: what is sold, when it is put up; prices in cents",
)
BID = StreamDeclaration(
    name="bid",
    schema=parse_schema("auction bigint, bidder bigint, price bigint, channel string, url string, ts timestamp, extra string"),
    event_time="ts",
    delay_ms=2000,
    comment="NEXMark: an offer for an auction; prices in cents",
)

OF_50 = 1, 3, 46
FIRST_ID = 1000
CATEGORIES = (10, 11, 12, 13, 14)
ACTIVE_PERSONS, IN_FLIGHT = 20, 30
"""Numbers of the last persons and auctions that are still active."""
HOT_OF = 4
"""Three of four auctions and bids belong to the hot person."""

_PLACES = (
    ("Phoenix", "AZ"), ("Los Angeles", "CA"), ("San Francisco", "CA"), ("Boise", "ID"), ("Portland", "OR"), ("Bend", "OR"),
    ("Redmond", "WA"), ("Seattle", "WA"), ("Kent", "WA"), ("Cheyenne", "WY"),
)  # fmt: skip
_FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

Event = tuple[StreamDeclaration, dict[str, Any]]


def events(count: int, start: datetime, step: timedelta, rng: random.Random) -> Iterator[Event]:
    """Yield the first ``count`` events, the n-th ``n * step`` after ``start``: each as its stream and its row by column."""
    persons, auctions = 0, 0
    for number in range(count):
        ts, kind = start + number * step, number % sum(OF_50)
        if kind < OF_50[0]:
            yield PERSON, _person(FIRST_ID + persons, ts, rng)
            persons += 1
        elif kind < OF_50[0] + OF_50[1]:
            yield AUCTION, _auction(FIRST_ID + auctions, persons, ts, rng)
            auctions += 1
        else:
            yield BID, _bid(auctions, persons, ts, rng)


def _person(id_: int, ts: datetime, rng: random.Random) -> dict[str, Any]:
    first, last = rng.choice(_FIRST), rng.choice(_LAST)
    city, state = rng.choice(_PLACES)
    return {
        "id": id_,
        "name": f"{first} {last}",
        "email": f"{first.lower()}@{last.lower()}.example",
        "credit_card": " ".join(f"{rng.randrange(10_000):04d}" for _ in range(4)),
        "city": city,
        "state": state,
        "ts": ts,
        "extra": _extra(rng),
    }


def _auction(id_: int, persons: int, ts: datetime, rng: random.Random) -> dict[str, Any]:
    initial = _price(rng)
    return {
        "id": id_,
        "item_name": f"item {rng.randrange(1000)}",
        "description": " ".join(rng.choice(_LAST).lower() for _ in range(4)),
        "initial_bid": initial,
        "reserve": initial + _price(rng),
        "ts": ts,
        "expires": ts + timedelta(seconds=rng.randrange(10, 60)),
        "seller": _person_id(persons, rng),
        "category": rng.choice(CATEGORIES),
        "extra": _extra(rng),
    }


def _bid(auctions: int, persons: int, ts: datetime, rng: random.Random) -> dict[str, Any]:
    hot = (auctions - 1) // 10 * 10
    auction = hot if rng.random() < 0.5 else rng.randrange(max(0, auctions - IN_FLIGHT), auctions)
    channel = rng.choice(_CHANNELS)
    return {
        "auction": FIRST_ID + auction,
        "bidder": _person_id(persons, rng),
        "price": _price(rng),
        "channel": channel,
        "url": f"https://auctions.example/{channel.lower()}/item.html?query=1&channel_id={rng.randrange(10_000)}",
        "ts": ts,
        "extra": _extra(rng),
    }


def _person_id(persons: int, rng: random.Random) -> int:
    hot = (persons - 1) // 5 * 5
    return FIRST_ID + (hot if rng.randrange(HOT_OF) else rng.randrange(max(0, persons - ACTIVE_PERSONS), persons))


def _price(rng: random.Random) -> int:
    """Return a price in cents, log-uniform over six orders of magnitude."""
    return round(10 ** (rng.random() * 6) * 100)


def _extra(rng: random.Random) -> str:
    return f"{rng.getrandbits(64):016x}"
