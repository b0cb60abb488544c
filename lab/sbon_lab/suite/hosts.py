"""Metrics of some machines, and deployments to them: equal times, missing values, silent machines, odd texts."""

import random
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from sbon_node.model.schema import parse_schema
from sbon_protocol.api.catalogue import StreamDeclaration

METRICS = StreamDeclaration(
    name="metrics",
    schema=parse_schema(
        "ts timestamp, host string, cpu double, memory_mb int, disk_gb decimal(10,3),"
        " healthy boolean, installed date, note string"
    ),
    event_time="ts",
    delay_ms=60_000,
    comment="of every host each half a minute, all at the same time; cpu is a share of one, NULL where it was not measured",
)
DEPLOYS = StreamDeclaration(
    name="deploys",
    schema=parse_schema("ts timestamp, host string, version string, minutes float, canary boolean"),
    event_time="ts",
    delay_ms=0,
    comment="what is installed on a host from that time on; one site has none",
)

EVERY = timedelta(seconds=30)
HOSTS_OF_A_SITE = 4
MACHINE_MB = 16_384
SILENCES = (timedelta(minutes=5), timedelta(minutes=5, seconds=30), timedelta(minutes=9))
"""Silences of a host: as long as the gap of a session, and longer."""

NOTES = (
    None, "", " ", "plain", 'a "quoted" word', "it's", "a,b;c|d", "tab\there", "two\nlines", "back\\slash", "100%_done",
    "naïve 漢字", "🚀 up", " padded ", "NULL", "null", "NaN", "--", "/* no comment */", "${HOME}", "`ticks`", "1e3",
)  # fmt: skip


def hosts(site: str) -> list[str]:
    return [f"{site}-{number}" for number in range(1, HOSTS_OF_A_SITE + 1)]


def metrics(site: str, start: datetime, length: timedelta, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield a site's rows, in order of time."""
    silent_until = dict.fromkeys(hosts(site), start)
    for tick in range(length // EVERY):
        ts = start + tick * EVERY
        for number, host in enumerate(hosts(site)):
            if ts < silent_until[host]:
                continue
            if rng.random() < 0.02:
                silent_until[host] = ts + rng.choice(SILENCES)
            cpu = round(rng.betavariate(2, 5), 4)
            yield {
                "ts": ts,
                "host": host,
                "cpu": None if rng.random() < 0.05 else cpu,
                "memory_mb": rng.randrange(512, MACHINE_MB),
                "disk_gb": Decimal(rng.randrange(1_000_000)) / 1000,
                "healthy": None if rng.random() < 0.02 else cpu < 0.6,
                "installed": None if number == 3 else date(2019, 2, 28) + timedelta(days=rng.randrange(900)),
                "note": rng.choice(NOTES),
            }


def deploys(site: str, start: datetime, length: timedelta, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield a site's rows, in order of time."""
    ts = start
    while site != "lga":
        ts += timedelta(seconds=rng.randrange(60, 600))
        if ts >= start + length:
            return
        yield {
            "ts": ts,
            "host": rng.choice(hosts(site)),
            "version": f"{rng.randrange(1, 3)}.{rng.randrange(10)}",
            "minutes": rng.randrange(1, 64) / 8,
            "canary": rng.choice((True, False, None)),
        }
