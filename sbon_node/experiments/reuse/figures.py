"""Figures of many queries with and without reuse, in virtual time: the queries of a world run once in each way.

SBON (Pietzuch et al., ICDE 2006), section 4.2.2, expects reuse to save more the more queries share the same data, and queries
to follow Zipf's law.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sbon_node.experiments.harness.network import Network
from sbon_node.experiments.reuse.links import links_once
from sbon_node.experiments.reuse.run import Observed, observe
from sbon_node.experiments.reuse.world import World, draw, write_streams
from sbon_node.experiments.suite.reference import Reference, Row, differences, plain
from sbon_node.model.sharing import Reuse
from sbon_node.simulation.outcome import in_memory

MODES: tuple[Reuse, ...] = ("never", "equal", "auto")
"""Kinds of reuse: none, of equal operators, and of those that contain the rows as well. The first is the one to compare with."""
TAIL_S = 20.0
"""Seconds for which producers have rows after the last query has arrived."""


def experiment(
    network: Network,
    *,
    nodes: int = 200,
    queries: int = 200,
    exponent: float = 1.0,
    every_s: float = 0.5,
    tail_s: float = TAIL_S,
    seed: int = 1,
    notify: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Return a row for each kind of reuse, and one of a run with the last of them in which a query is stopped midway.

    Raises :class:`SbonError` ``bad-matrix`` or ``simulation-failed``.
    """
    world = draw(network, nodes=nodes, queries=queries, exponent=exponent, every_s=every_s, tail_s=tail_s, seed=seed)
    rows, without = list[dict[str, Any]](), 0.0
    with tempfile.TemporaryDirectory(prefix="sbon-reuse-", dir=in_memory()) as folder:
        streams = write_streams(world, Path(folder), seed)
        reference = Reference(streams)
        for reuse, stop_s in (*((mode, None) for mode in MODES), (MODES[-1], world.seconds / 2)):
            shown = partial(_notify, notify, f"reuse {reuse}{'' if stop_s is None else ', one stopped'}: ")
            run = observe(world, streams, reuse=reuse, stop_s=stop_s, seed=seed, notify=shown)
            row = figures(world, run, reference)
            without = without or row["byte_ms"]
            saved = round(100 * (1 - row["byte_ms"] / without), 1) if stop_s is None and without else None
            rows.append({"reuse": reuse, **row, "saved_pct": saved})
    return rows


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
