"""Hosts that are lost with their disks: the backup of their operator goes on, and its rows stay right."""

import statistics
import time
from pathlib import Path
from typing import NamedTuple

from sbon import SbonError
from sbon.local.cluster import SHORT_LIVED, LocalCluster
from sbon.model import OperatorInfo
from sbon_lab.experiments.harness.experiment import Found, Notify, Row
from sbon_lab.migration.feed import Feed
from sbon_lab.migration.kills import kill
from sbon_lab.migration.kinds import KINDS
from sbon_lab.migration.measuring import SOURCE
from sbon_lab.migration.moving_query import MovingQuery
from sbon_protocol.api.durability import BY_FOLLOWER, REPLICATED, Durability
from sbon_protocol.api.states.backup_states import CAN_TAKE_OVER
from sbon_protocol.api.states.operator_states import RUNNING

HOSTS = ("left", "right", "far")
"""An operator's host, its backup, and the one that becomes the next backup."""
POLL_S = 0.02
FEED = Feed()


class Recovery(NamedTuple):
    """Times of one recovery, in seconds since the kill: until the death is known, and until the first row after that."""

    detected_s: float
    row_s: float


def run(
    folder: Path, kinds: tuple[str, ...], losses: int, notify: Notify, found: Found, durability: Durability = REPLICATED
) -> list[Row]:
    """Return a row for each kind: ``losses`` of the host of its last operator, with its disk, and the wrong rows."""
    rows = []
    with LocalCluster((SOURCE, *HOSTS), folder=folder / "cluster", overrides=SHORT_LIVED) as cluster:
        for kind in kinds:
            rows.append(lose_hosts(cluster, kind, folder / kind, losses, notify, durability))
            found(rows[-1])
    return rows


def lose_hosts(
    cluster: LocalCluster,
    kind: str,
    folder: Path,
    losses: int,
    notify: Notify,
    durability: Durability,
    source: str = SOURCE,
    hosts: tuple[str, ...] = HOSTS,
    feed: Feed = FEED,
) -> Row:
    """Return the row of a kind whose last operator runs at one of ``hosts``; source and consumer are at ``source``."""
    name = f"losses-{kind}-{durability}"
    with MovingQuery(cluster, source, name, KINDS[kind], feed, folder, strategy="consumer", durability=durability) as query:
        notify(f"{kind}: the first rows")
        query.more(3)
        operator, suffered, followed = query.operators()[-1], list[Recovery](), 0
        for number in range(losses):
            notify(f"{kind}: loss {number + 1} of {losses}")
            host = away_from_source(query, operator, hosts)
            query.until(lambda: has_backup(query, operator))
            query.more(3)
            query.until(lambda: has_backup(query, operator))  # A busy machine may have started the follower anew meanwhile.
            suffered.append(lose(cluster, query, host, source))
            followed += _has_followed(query, operator)
            cluster[host].start()
            cluster[host].wait_ready()
            cluster.wait_converged()
        notify(f"{kind}: the rows")
        missing, superfluous = query.end(query.answers())
        numbers = [arrival.number for arrival in query.arrivals]
        beyond_s = [one.row_s - one.detected_s for one in suffered]
        return {
            "kind": kind,
            "durability": durability,
            "losses": losses,
            "by_follower": followed,
            "detected_p50_s": round(statistics.median(one.detected_s for one in suffered), 2),
            "beyond_p50_s": round(statistics.median(beyond_s), 2),
            "beyond_max_s": round(max(beyond_s), 2),
            "total_p50_s": round(statistics.median(one.row_s for one in suffered), 2),
            "total_max_s": round(max(one.row_s for one in suffered), 2),
            "rows": sum(len(arrival.rows) for arrival in query.arrivals),
            "repeated_frames": len(numbers) - len(set(numbers)),
            "wrong": missing + superfluous,
        }


def away_from_source(query: MovingQuery, operator: str, hosts: tuple[str, ...] = HOSTS) -> str:
    """Let the operator run at one of ``hosts``, nodes without source or sink, and return that."""
    tries = [host for host in hosts if host != query.host_of(operator)]
    while (host := query.host_of(operator)) not in hosts:
        try:
            query.move(operator, tries[0])
        except SbonError as error:
            if error.code != "keeps-backup":
                raise
            tries.pop(0)
    return host


def lose(cluster: LocalCluster, query: MovingQuery, host: str, observer_name: str = SOURCE) -> Recovery:
    """Kill all of a node and delete its disk; wait until rows come that nobody had when its death was known."""
    observer = cluster[observer_name].client
    killed_s = time.monotonic()
    kill(cluster[host], "all")
    cluster[host].lose_data()
    while next((one.state for one in observer.members() if one.name == host), "dead") in ("alive", "suspect"):
        time.sleep(POLL_S)
    detected_s, count, written = time.monotonic(), len(query.arrivals), len(query.written_s)
    query.until(lambda: len(query.arrivals) > count and len(query.written_s) > written)
    return Recovery(detected_s - killed_s, query.arrivals[count].at_s - killed_s)


def _has_followed(query: MovingQuery, operator: str) -> bool:
    """Return whether the operator's host has taken it over as a follower."""
    info = next((one for one in query.info().operators if one.id == operator), None)
    return info is not None and info.backup is not None and info.backup.recovered == BY_FOLLOWER


def has_backup(query: MovingQuery, operator: str) -> bool:
    """Return whether the operator runs, and its backup has all that it has shown."""
    try:
        info = next(one for one in query.info().operators if one.id == operator)
    except (SbonError, StopIteration):
        return False
    return is_covered(info)


def is_covered(info: OperatorInfo) -> bool:
    """Return whether the operator runs, and its backup could go on with it, a hot one's by a follower."""
    backup = info.backup
    return info.state == RUNNING and backup is not None and backup.state in CAN_TAKE_OVER and backup.follows is not False
