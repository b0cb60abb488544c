"""Figures of many queries with and without reuse, in virtual time: the queries of a world run once in each way.

SBON (Pietzuch et al., ICDE 2006), section 4.2.2, expects reuse to save more the more queries share the same data, and queries
to follow Zipf's law.
"""

import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sbon_lab.experiments.harness.network import Network
from sbon_lab.experiments.reuse.links import links_once
from sbon_lab.experiments.reuse.run import Observed, observe
from sbon_lab.experiments.reuse.world import World, draw, write_streams
from sbon_lab.simulation.outcome import in_memory
from sbon_lab.suite.reference import Reference, Row, differences, plain
from sbon_node.base.logging import output
from sbon_protocol.api.sharing import Reuse

MODES: tuple[Reuse, ...] = ("never", "equal", "auto")
"""Kinds of reuse: none, of equal operators, and of those that contain the rows as well. The first is the one to compare with."""
TAIL_S = 20.0
"""Seconds for which producers have rows after the last query has arrived."""


class _Part(NamedTuple):
    """A run of the world with one kind of reuse; ``stop_s`` is the time at which a query is stopped, if one is."""

    world: World
    reuse: Reuse
    stop_s: float | None
    seed: int

    @property
    def about(self) -> str:
        return f"reuse {self.reuse}{'' if self.stop_s is None else ', one stopped'}"


def experiment(
    network: Network,
    *,
    nodes: int = 200,
    queries: int = 200,
    exponent: float = 1.0,
    every_s: float = 0.5,
    tail_s: float = TAIL_S,
    seed: int = 1,
    jobs: int = 1,
    notify: Callable[[str], None] = lambda text: None,
    done: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Return a row for each kind of reuse, and one of a run with the last of them in which a query is stopped midway.

    ``jobs`` is the number of runs at a time, each in a process of its own if there are several; ``done`` is called with each that
    has ended. Raises :class:`SbonError` ``bad-matrix`` or ``simulation-failed``.
    """
    world = draw(network, nodes=nodes, queries=queries, exponent=exponent, every_s=every_s, tail_s=tail_s, seed=seed)
    parts = [*(_Part(world, mode, None, seed) for mode in MODES), _Part(world, MODES[-1], world.seconds / 2, seed)]
    rows = list[dict[str, Any]]()
    for part, row in zip(parts, _all(parts, jobs, notify), strict=True):
        without = rows[0]["byte_ms"] if rows else row["byte_ms"]
        saved = round(100 * (1 - row["byte_ms"] / without), 1) if part.stop_s is None and without else None
        rows.append({"reuse": part.reuse, **row, "saved_pct": saved})
        done(f"{part.about}: usage {row['byte_ms']:,} byte_ms, {row['operators']} operators, {row['wrong']} wrong rows")
    return rows


def _all(parts: Sequence[_Part], jobs: int, notify: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    if jobs == 1:
        yield from (_row(part, notify) for part in parts)
        return
    notify(f"{len(parts)} runs, {jobs} at a time")
    # A child of a process with threads must not be a fork of it.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), output.silence) as pool:
        yield from pool.map(_row, parts)


def _row(part: _Part, notify: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="sbon-reuse-", dir=in_memory()) as folder:
        streams = write_streams(part.world, Path(folder), part.seed)
        shown = partial(_notify, notify, f"{part.about}: ")
        run = observe(part.world, streams, reuse=part.reuse, stop_s=part.stop_s, seed=part.seed, notify=shown)
        return figures(part.world, run, Reference(streams))


def _notify(notify: Callable[[str], None], about: str, text: str) -> None:
    notify(about + text)


def figures(world: World, run: Observed, reference: Reference) -> dict[str, Any]:
    """Return the figures of a run.

    ``byte_ms`` is the network usage: the bytes that each link bears, x its true one-way latency. ``operators`` were
    instantiated; ``shared`` of them are read by other queries than their own, which are ``sharing`` queries. ``wrong`` counts the
    rows that differ from DuckDB's; those of a query that was stopped are to be among them.
    """
    links = links_once(run.ended.values())
    shared = {one.id for info in run.accepted.values() for one in info.shared}
    return {
        "stopped": run.stopped,
        "queries": len(run.accepted),
        "refused": len(run.refused),
        "refusals": sorted(set(run.refused.values())),
        "kinds": len({query.template for query in world.queries}),
        "operators": sum(len(info.operators) for info in run.accepted.values()),
        "shared": len(shared),
        "sharing": sum(bool(info.shared) for info in run.accepted.values()),
        "byte_ms": round(sum(link.borne_bytes * world.one_way_ms(link.source_node, link.target_node) for link in links)),
        "link_mb": round(sum(link.borne_bytes for link in links) / 1e6, 3),
        "data_mb": round(run.data_bytes / 1e6, 3),
        "control_mb": round(run.control_bytes / 1e6, 3),
        "rows": sum(map(len, run.rows.values())),
        "wrong": sum(wrong(world, run, reference).values()),
        "cpu_s": round(run.cpu_s, 1),
    }


def wrong(world: World, run: Observed, reference: Reference) -> Mapping[str, int]:
    """Return the number of rows that differ from DuckDB's, for each query that has some."""
    expected: dict[str, list[Row]] = {}
    counts: dict[str, int] = {}
    for query in world.queries:
        if query.name not in run.rows:
            continue
        answer = expected.setdefault(query.template.sql, reference.answer(query.case))
        found = run.rows[query.name]
        if query.name == run.stopped:
            counts[query.name] = (Counter(map(plain, found)) - Counter(map(plain, answer))).total()
        else:
            counts[query.name] = len(differences(found, answer, most=len(answer) + len(found) + 1))
    return {name: count for name, count in counts.items() if count}
